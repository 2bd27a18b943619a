#!/usr/bin/env bash
# Prepares this machine for the project: setup.sh system VERSION | python | java | kafka VERSION,
# where VERSION is that of Apache Kafka in tools/kafka/pom.xml.
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
    # One run of the JVM answers both questions: the version, and whether it can run a source file.
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

setup_kafka() {
    require check_maven
    local libs=.parts/kafka-$kafka_version/libs
    say "fetching the jars of Apache Kafka $kafka_version"
    # Copied beside their place and moved in whole, so that a broken download leaves no half set.
    rm -rf .parts/fetched
    mkdir -p .parts
    mvn --batch-mode --quiet --update-snapshots --file tools/kafka/pom.xml \
        dependency:copy-dependencies -DoutputDirectory="$PWD/.parts/fetched" \
        >.parts/maven.log 2>&1 || {
        cat .parts/maven.log >&2
        die "Maven could not fetch Apache Kafka's jars; its own message is above"
    }
    rm -rf "$libs"
    mkdir -p "$(dirname "$libs")"
    mv .parts/fetched "$libs"
}

# --- All at once ----------------------------------------------------------------------------------

# Before anything is made: whatever this machine lacks is named, or installed, in one go. Tools that
# only make something are not asked for once that is there.
check_system() {
    [[ -e .venv/.ready ]] || check_python
    check_java
    [[ -e .parts/kafka-$kafka_version/.ready ]] || check_maven
}

usage="usage: tools/setup.sh system VERSION | python | java | kafka VERSION"
kafka_version=${2:-}
case "${1:-} $#" in
"system 2") require check_system ;;
"python 1") setup_python ;;
"java 1") require check_java ;;
"kafka 2") setup_kafka ;;
*) die "$usage" ;;
esac
