#!/usr/bin/env bash
# Prepares this machine for the project: setup.sh system VERSION | python | programs | kafka VERSION |
# kafka-apps VERSION | java-clients VERSION | spark-kafka | kafkajs | franz-go, where VERSION is that of
# Apache Kafka in tools/kafka/pom.xml. `programs` only looks for what must be installed: Java, Node.js, kcat,
# Kerberos, PostgreSQL, MariaDB, ZooKeeper and Prometheus.
# What is missing is installed with apt-get when we are root on a Debian-like machine; otherwise
# every missing part gets one line that says how to get it, and the script fails.
# pip, Maven and apt-get use whatever package sources the machine is configured for.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# --- What is missing ------------------------------------------------------------------------------

missing_lines=()
missing_packages=() # Debian names; "a|b" means the first of them that this release has

missing() { # PART PACKAGES…
    local part=$1
    shift
    missing_packages+=("$@")
    missing_lines+=("$part is missing: install it (on Debian: apt-get install ${*//|/ or })")
}

available_package() { # "a|b" -> the first that apt knows, or the first of all
    local names name
    IFS='|' read -ra names <<<"$1"
    for name in "${names[@]}"; do
        if apt-cache show "$name" >/dev/null 2>&1; then
            printf '%s\n' "$name"
            return
        fi
    done
    printf '%s\n' "${names[0]}"
}

install_missing() {
    local package names=()
    say "apt-get install: ${missing_packages[*]//|/ or }"
    apt-get update -qq
    for package in "${missing_packages[@]}"; do
        names+=("$(available_package "$package")")
    done
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${names[@]}" \
        >/dev/null
    hash -r
}

require() { # CHECK: a function that calls `missing` for each part it does not find
    missing_lines=() missing_packages=()
    "$1"
    if ((${#missing_lines[@]})) && ((EUID == 0)) && command -v apt-get >/dev/null; then
        install_missing || say "apt-get failed; what it was to install is named below" >&2
        missing_lines=() missing_packages=()
        "$1"
    fi
    if ((${#missing_lines[@]})); then
        printf 'setup: %s\n' "${missing_lines[@]}" >&2
        exit 1
    fi
}

# --- Python ---------------------------------------------------------------------------------------

find_python() { # sets python to an interpreter that is new enough, or to nothing
    local candidate
    python=
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            python=$(command -v "$candidate")
            return
        fi
    done
}

check_python() {
    find_python
    if [[ -z $python ]]; then
        missing "Python 3.11 or newer" python3 python3-venv python3-dev
    elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        missing "the venv module of $python" python3-venv
    fi
    local compiler=${CC:-cc} include=
    if [[ -n $python ]]; then
        compiler=${CC:-$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("CC"))')}
        include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    fi
    if ! command -v "${compiler%% *}" >/dev/null; then
        missing "a C compiler (${compiler%% *})" gcc libc6-dev
    fi
    if [[ -n $python && ! -e $include/Python.h ]]; then
        missing "the C headers of $python" python3-dev
    fi
    # The package gssapi is compiled.
    command -v krb5-config >/dev/null || missing "the C headers of Kerberos (krb5-config)" libkrb5-dev
}

setup_python() {
    require check_python
    # A .venv that was copied from elsewhere, or whose interpreter has gone, is made again.
    if [[ -e .venv ]] && ! .venv/bin/pip --version >/dev/null 2>&1; then
        say ".venv does not work any more; making it again"
        rm -rf .venv
    fi
    if [[ ! -e .venv ]]; then
        say "making .venv with $("$python" --version)"
        "$python" -m venv .venv
    fi
    say "installing the project and its development tools into .venv"
    .venv/bin/python -m pip install --quiet --constraint constraints.txt pip
    .venv/bin/python -m pip install --quiet --constraint constraints.txt --group dev --editable .
}

# --- Java and Kafka -------------------------------------------------------------------------------

check_java() {
    local modules version
    # One run of the JVM shows both: the version, and whether it can run a source file.
    modules=$(java --list-modules 2>/dev/null || true)
    version=$(sed -nE 's/^java\.base@([0-9]+).*/\1/p' <<<"$modules")
    if ((${version:-0} < 17)); then
        missing "Java 17 or newer" "openjdk-17-jre-headless|openjdk-21-jre-headless|default-jre-headless"
    elif ! grep -q '^jdk\.compiler' <<<"$modules"; then
        missing "the compiler of Java $version (jdk.compiler)" "openjdk-$version-jdk-headless"
    fi
}

check_maven() {
    command -v mvn >/dev/null || missing "Maven" maven
}

fetch_jars() { # WHAT POM FOLDER OPTIONS…
    local what=$1 pom=$2 directory=$3
    shift 3
    say "fetching the jars of $what"
    # Copied beside their place and moved in whole, so that a broken download leaves no half set.
    rm -rf "$directory.fetched"
    mkdir -p "$(dirname "$directory")"
    mvn --batch-mode --quiet --file "$pom" dependency:copy-dependencies \
        -DoutputDirectory="$PWD/$directory.fetched" "$@" >.parts/maven.log 2>&1 || {
        cat .parts/maven.log >&2
        die "Maven could not fetch the jars of $what; its own message is above"
    }
    rm -rf "$directory"
    mv "$directory.fetched" "$directory"
}

compile_java() { # FOLDER LIBS CLASSES
    # javac is a module of its own here, because a JRE with the compiler has no such command.
    mkdir -p "$3"
    java -m jdk.compiler/com.sun.tools.javac.Main -Xmaxerrs 3 \
        -cp "$(printf '%s:' "$2"/*.jar)" -d "$3" "$1"/*.java
}

setup_kafka() {
    require check_maven
    fetch_jars "Apache Kafka $kafka_version" tools/kafka/pom.xml \
        ".parts/kafka-$kafka_version/libs" --update-snapshots -Dkafka.version="$kafka_version"
}

# Kafka Streams with the program beside the pom, and Kafka Connect.
setup_kafka_apps() {
    require check_maven
    local pom=tools/kafka-apps/pom.xml directory=.parts/kafka-apps-$kafka_version
    if [[ ! (-e $directory/libs/kafka-streams-$kafka_version.jar && $directory/libs -nt $pom) ]]; then
        fetch_jars "Kafka Streams and Connect $kafka_version" "$pom" "$directory/libs" \
            -Dkafka.version="$kafka_version"
    fi
    rm -rf "$directory/classes"
    compile_java tools/kafka-apps "$directory/libs" "$directory/classes" ||
        die "tools/kafka-apps does not compile with Kafka Streams $kafka_version"
}

setup_spark_kafka() {
    require check_maven
    fetch_jars "Spark's Kafka connector" tools/spark-kafka/pom.xml .parts/spark-kafka/libs
}

# --- The other clients ----------------------------------------------------------------------------

check_kcat() {
    command -v kcat >/dev/null || missing "kcat" kcat
}

check_node() {
    local version
    version=$(node --version 2>/dev/null | sed -nE 's/^v([0-9]+).*/\1/p' || true)
    ((${version:-0} >= 18)) || missing "Node.js 18 or newer" nodejs
}

check_npm() { # npm compiles the lz4 codec
    command -v npm >/dev/null || missing "npm" npm
    command -v make >/dev/null || missing "make" make
    command -v "${CXX:-g++}" >/dev/null || missing "a C++ compiler (${CXX:-g++})" g++
}

check_go() { # from 1.21 on, Go fetches the newer version that go.mod may name
    local minor
    minor=$(go version 2>/dev/null | sed -nE 's/^go version go1\.([0-9]+).*/\1/p' || true)
    ((${minor:-0} >= 21)) || missing "Go 1.21 or newer" golang-go
}

# Only the programs: the tests start KDCs of their own, in temporary directories. kcat logs in with the
# module of SASL.
check_kerberos() {
    local name
    for name in krb5kdc:krb5-kdc kdb5_util:krb5-kdc kadmin.local:krb5-admin-server kinit:krb5-user; do
        PATH=$PATH:/usr/sbin command -v "${name%:*}" >/dev/null ||
            missing "${name%:*} of Kerberos" "${name#*:}"
    done
    [[ -n $(compgen -G '/usr/lib*/sasl2/libgssapiv2.so' || compgen -G '/usr/lib/*/sasl2/libgssapiv2.so') ]] ||
        missing "the Kerberos module of SASL" libsasl2-modules-gssapi-mit
}

check_programs() {
    check_java
    check_node
    check_kcat
    check_kerberos
    check_databases
    check_zookeeper
    check_prometheus
}

# The program beside the pom, compiled against each version's jars. Kafka's own are there already.
setup_java_clients() {
    require check_maven
    local pom=tools/clients/java/pom.xml version directory libs
    for version in $(sed -nE 's/.*<clients\.versions>(.*)<\/.*/\1/p' "$pom") "$kafka_version"; do
        directory=.parts/java-clients/$version
        rm -rf "$directory.new"
        mkdir -p "$directory.new"
        libs=$directory.new/libs
        if [[ $version == "$kafka_version" ]]; then
            ln -s "../../kafka-$version/libs" "$libs"
        elif [[ -e $directory/libs/kafka-clients-$version.jar && $directory/libs -nt $pom ]]; then
            mv "$directory/libs" "$libs"
        else
            fetch_jars "Kafka's Java client $version" "$pom" "$libs" -Dclients.version="$version"
        fi
        rm -rf "$directory"
        mv "$directory.new" "$directory"
        compile_java tools/clients/java "$directory/libs" "$directory/classes" ||
            die "tools/clients/java does not compile with the Java client $version"
    done
}

setup_kafkajs() {
    require check_npm
    say "installing KafkaJS and its codecs"
    rm -rf .parts/node
    mkdir -p .parts/node
    cp tools/clients/kafkajs/package.json tools/clients/kafkajs/package-lock.json .parts/node
    npm ci --prefix .parts/node --no-audit --no-fund --loglevel=error >.parts/npm.log 2>&1 || {
        cat .parts/npm.log >&2
        die "npm could not install KafkaJS; its own message is above"
    }
}

setup_franz_go() {
    require check_go
    say "building the franz-go client"
    mkdir -p .parts/bin
    go build -C tools/clients/franz-go -trimpath -o "$PWD/.parts/bin/franz-go-client" . ||
        die "Go could not build tools/clients/franz-go; its own message is above"
}

# --- Databases ------------------------------------------------------------------------------------

# Only the programs: the tests start servers of their own, in temporary directories. MariaDB's core
# package brings no service; that of PostgreSQL is not used.
check_databases() {
    local postgres mariadb
    # Debian keeps PostgreSQL's programs off the PATH, in a directory for each version.
    postgres=$(compgen -G '/usr/lib/postgresql/*/bin/initdb' || command -v initdb || true)
    [[ -n $postgres ]] || missing "PostgreSQL" postgresql
    mariadb=$(PATH=$PATH:/usr/sbin command -v mariadbd || true)
    [[ -n $mariadb ]] || missing "MariaDB" "mariadb-server-core|mariadb-server"
}

# --- ZooKeeper ------------------------------------------------------------------------------------

# Only the program: the tests start servers of their own. Debian's service is another package.
check_zookeeper() {
    [[ -e /usr/share/java/zookeeper.jar ]] || missing "ZooKeeper" zookeeper
}

# --- Prometheus -----------------------------------------------------------------------------------

# Only the programs: the tests start a server of their own, Debian's service is not used.
check_prometheus() {
    command -v promtool >/dev/null && command -v prometheus >/dev/null || missing "Prometheus" prometheus
}

# --- All at once ----------------------------------------------------------------------------------

# First of all, everything that this machine lacks is listed, or installed, in one go. Tools that
# only build something are not required once it is built.
check_system() {
    [[ -e .venv/.ready ]] || check_python
    check_programs
    [[ -e .parts/kafka-$kafka_version/.ready && -e .parts/kafka-apps-$kafka_version/.ready &&
        -e .parts/java-clients/.ready && -e .parts/spark-kafka/.ready ]] || check_maven
    [[ -e .parts/node/.ready ]] || check_npm
    [[ -e .parts/bin/franz-go-client ]] || check_go
}

usage="usage: tools/setup.sh system VERSION | python | programs | kafka VERSION | \
kafka-apps VERSION | java-clients VERSION | spark-kafka | kafkajs | franz-go"
kafka_version=${2:-}
case "${1:-} $#" in
"system 2") require check_system ;;
"python 1") setup_python ;;
"programs 1") require check_programs ;;
"kafka 2") setup_kafka ;;
"kafka-apps 2") setup_kafka_apps ;;
"java-clients 2") setup_java_clients ;;
"spark-kafka 1") setup_spark_kafka ;;
"kafkajs 1") setup_kafkajs ;;
"franz-go 1") setup_franz_go ;;
*) die "$usage" ;;
esac
