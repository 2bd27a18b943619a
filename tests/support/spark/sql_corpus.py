"""A corpus of streaming SQL over a few views: good, refused and unbounded statements.

Tests compare it with `validate` without Spark, and with Spark itself.
"""

from penstock.spark.pipeline.model import (
    PipelineSpec,
    SourceSpec,
    StepSpec,
    TableSpec,
    Watermark,
)
from penstock.spark.sinks.database.kind import DatabaseSinkSpec

CLICKS = (
    "user string, at timestamp, page string, n int, price decimal(10,2), tags array<string>, "
    "order struct<id: bigint, lines: array<struct<sku: string, price: double>>>, "
    "props map<string, string>, made timestamp"
)
VIEWS = "user string, seen timestamp, ad string"
BARE = "user string, at timestamp, n int"
CUSTOMERS = "user string, city string, since date"


def pipeline(*sql: str, unbounded_state: bool = False) -> PipelineSpec:
    """Returns a pipeline with steps `s0`, `s1` …; its sink upserts the last one."""
    steps = tuple(
        StepSpec(name=f"s{number}", sql=text, sql_line=1, unbounded_state=unbounded_state)
        for number, text in enumerate(sql)
    )
    return PipelineSpec(
        name="corpus",
        bootstrap_servers="localhost:9092",
        sources=(
            SourceSpec(
                name="clicks",
                topics=("clicks",),
                schema=CLICKS,
                watermark=Watermark(column="at", delay="10 minutes"),
            ),
            SourceSpec(
                name="views",
                topics=("views",),
                schema=VIEWS,
                watermark=Watermark(column="seen", delay="20 minutes"),
            ),
            SourceSpec(name="bare", topics=("bare",), schema=BARE),
        ),
        tables=(TableSpec(name="customers", path="s3://somewhere/customers", schema=CUSTOMERS),),
        steps=steps,
        sinks=(
            DatabaseSinkSpec(
                name="out",
                view=f"s{len(sql) - 1}",
                database="sqlite:///out.db",
                table="out",
                mode="upsert",
                key=("k",),
            ),
        ),
    )


GOOD = (
    "SELECT user AS k, at, upper(page) AS page FROM clicks WHERE n > 1 AND page LIKE '/shop%'",
    "SELECT * FROM clicks",
    "SELECT c.*, n * 2 AS twice FROM clicks c",
    "SELECT * EXCEPT (tags, props) FROM clicks",
    "SELECT order.id AS k, order.lines.sku AS skus, order.lines[0].price AS first FROM clicks",
    "SELECT order.*, user FROM clicks",
    "SELECT props['lang'] AS lang, props.lang AS also, map_keys(props) AS names FROM clicks",
    "SELECT user, tag FROM clicks LATERAL VIEW explode(tags) t AS tag",
    "SELECT user, position, tag FROM clicks LATERAL VIEW OUTER posexplode(tags) AS position, tag",
    "SELECT user, explode(tags) AS tag FROM clicks",
    "SELECT user, line.sku FROM (SELECT user, explode(order.lines) AS line FROM clicks)",
    "SELECT transform(tags, t -> concat(t, page)) AS t, filter(tags, t -> t <> user) AS f\n"
    "FROM clicks",
    "SELECT aggregate(order.lines, 0D, (a, l) -> a + l.price) AS total FROM clicks",
    "SELECT CASE WHEN n > 3 THEN 'many' WHEN n IS NULL THEN NULL ELSE 'few' END AS k FROM clicks",
    "SELECT n + 1 AS more, more * 2 AS still_more FROM clicks",
    "SELECT date_trunc('HOUR', at) AS hour, cast(n AS string) AS n, at + INTERVAL 1 DAY AS\n"
    "next FROM clicks",
    "SELECT from_json(page, 'a int, b string').a AS a, get_json_object(page, '$.b') AS b FROM\n"
    "clicks",
    "WITH big AS (SELECT user, at, n FROM clicks WHERE n > 10), named AS (SELECT b.user AS k,\n"
    "n FROM big b)\n"
    "SELECT k, n FROM named",
    "SELECT user, at FROM clicks UNION ALL SELECT user, seen FROM views",
    "SELECT user, current_timestamp() AS now, current_date AS today, uuid() AS id FROM clicks",
    "SELECT window(at, '1 minute') AS w, count(*) AS n FROM clicks GROUP BY window(at, '1 minute')",
    "SELECT window, user, sum(n) AS total FROM clicks GROUP BY window(at, '10 minutes', '5\n"
    "minutes'), user",
    "SELECT window.start AS k, window.end AS till, page, avg(n) AS mean FROM clicks\n"
    "GROUP BY page, window(at, '5 minutes') HAVING avg(n) > 1",
    "SELECT w.start AS k, n FROM (SELECT window(at, '1 minute') AS w, count(*) AS n FROM\n"
    "clicks GROUP BY w)",
    "SELECT window(at, '1 minute') AS w, page AS k, max_by(user, at) AS last FROM clicks\n"
    "GROUP BY 1, 2",
    "SELECT session_window(at, '5 minutes') AS s, user, count(1) AS n FROM clicks\n"
    "GROUP BY session_window(at, '5 minutes'), user",
    "SELECT session_window.start AS began, user, collect_list(page) AS pages FROM clicks\n"
    "GROUP BY session_window(at, CASE WHEN n > 1 THEN '1 minute' ELSE '5 minutes' END), user",
    "SELECT at, count(*) AS n FROM clicks GROUP BY at",
    "SELECT window, count(*) AS n FROM (SELECT window(at, '1 minute') AS window, user FROM\n"
    "clicks) GROUP BY window",
    "SELECT window(at, '1 hour') AS w, user, count(*) FILTER (WHERE n > 1) AS n, "
    "approx_count_distinct(page) AS pages FROM clicks GROUP BY w, user",
    "SELECT DISTINCT user, at FROM clicks",
    "SELECT user, at FROM clicks UNION SELECT user, seen FROM views",
    "SELECT c.user AS k, city FROM clicks c JOIN customers ON c.user = customers.user",
    "SELECT c.user AS k, d.city FROM clicks c LEFT JOIN customers d ON c.user = d.user",
    "SELECT d.user AS k, c.page FROM customers d RIGHT JOIN clicks c ON c.user = d.user",
    "SELECT user, city, page FROM clicks JOIN customers USING (user)",
    "SELECT * FROM clicks NATURAL JOIN customers",
    "SELECT user AS k, at FROM clicks LEFT SEMI JOIN customers ON clicks.user = customers.user",
    "SELECT c.user AS k FROM clicks c LEFT ANTI JOIN customers d ON c.user = d.user",
    "SELECT user AS k FROM clicks WHERE user IN (SELECT user FROM customers WHERE city = 'Ulm')",
    "SELECT user AS k FROM clicks c WHERE EXISTS (SELECT 1 FROM customers d WHERE d.user = c.user)",
    "SELECT user AS k, (SELECT max(since) FROM customers) AS newest FROM clicks",
    "SELECT c.user AS k, v.ad, c.at FROM clicks c JOIN views v\n"
    "ON c.user = v.user AND c.at BETWEEN v.seen AND v.seen + INTERVAL 1 HOUR",
    "SELECT c.user AS k, v.ad FROM clicks c, views v WHERE c.user = v.user\n"
    "AND c.at >= v.seen AND c.at <= v.seen + INTERVAL 1 HOUR",
    "SELECT v.user AS k, v.ad, c.page FROM views v LEFT JOIN clicks c\n"
    "ON c.user = v.user AND c.at >= v.seen AND c.at <= v.seen + INTERVAL 1 HOUR",
    "SELECT v.user AS k, v.ad, c.page FROM views v FULL OUTER JOIN clicks c\n"
    "ON c.user = v.user AND c.at >= v.seen AND c.at <= v.seen + INTERVAL 1 HOUR",
    "SELECT c.user AS k FROM clicks c LEFT SEMI JOIN views v\n"
    "ON c.user = v.user AND c.at >= v.seen AND c.at <= v.seen + INTERVAL 1 HOUR",
    "SELECT c.user AS k, v.ad FROM clicks c JOIN views v ON c.user = v.user AND c.at = v.seen",
    "SELECT a.w, a.n, b.n AS m FROM (SELECT window(at, '1 minute') AS w, count(*) AS n FROM\n"
    "clicks GROUP BY w) a\n"
    "JOIN (SELECT window(seen, '1 minute') AS w, count(*) AS n FROM views GROUP BY w) b ON\n"
    "a.w = b.w",
    "SELECT window(window_time(w), '1 hour') AS h, sum(n) AS n FROM\n"
    "(SELECT window(at, '1 minute') AS w, count(*) AS n FROM clicks GROUP BY w) GROUP BY h",
    "SELECT window(w, '1 hour') AS h, max(n) AS n FROM\n"
    "(SELECT window(at, '1 minute') AS w, count(*) AS n FROM clicks GROUP BY w) GROUP BY h",
    "SELECT count(*) AS n, sum(price) AS total FROM clicks",
    "SELECT user AS k FROM clicks LIMIT 100",
    "SELECT city, count(*) AS n FROM customers GROUP BY city ORDER BY n",
    "SELECT window.start, count(*) AS n FROM (SELECT to_timestamp(since) AS t FROM customers)\n"
    "GROUP BY window(t, '1 day') ORDER BY start",
    "SELECT k, count(*) AS n, window(at, '1 minute') AS w FROM (SELECT user AS k, at FROM\n"
    "clicks) GROUP BY ALL",
    "SELECT * FROM (SELECT user, page, at, n FROM clicks) PIVOT (sum(n) FOR page IN ('a', 'b'))",
    "SELECT v.code AS k, c.user FROM clicks c JOIN (VALUES ('a', 1), ('b', 2)) AS v(code, nr)\n"
    "ON c.page = v.code",
    "SELECT count(*) AS many, window(at, '1 minute') AS w FROM clicks GROUP BY w HAVING many > 2",
    "WITH t(a, b) AS (SELECT user, at FROM clicks) SELECT a AS k, b FROM t",
    "SELECT TIMESTAMP '2026-01-01 00:00:00' AS t, DATE '2026-01-01' AS d, X'1F' AS x, 1 AS\n"
    "one FROM clicks",
    "SELECT user AS k, extract(HOUR FROM at) AS h, at::date AS d, timestampdiff(MINUTE, made,\n"
    "at) AS m FROM clicks",
    "SELECT /*+ BROADCAST(d) */ c.user AS k FROM clicks c JOIN customers d ON c.user = d.user",
    "SELECT `user` AS k, `at` -- the time\nFROM `clicks`",
    "SELECT named_struct('a', user, 'b', n) AS s, struct(user, n) AS t, array(1, 2) AS xs\n"
    "FROM clicks",
    "SELECT s.a AS k FROM (SELECT named_struct('a', user) AS s FROM clicks)",
    "SELECT user AS k, inline(order.lines) FROM clicks",
    "SELECT stack(2, user, page) AS (x) FROM clicks",
    "SELECT c.user AS k, t.tag FROM clicks c, LATERAL explode(c.tags) AS t(tag)",
    "SELECT to_json(struct(*)) AS value, user AS key FROM clicks",
    "SELECT user AS k, map('a', 1)['a'] AS a, coalesce(page, 'none') AS page FROM clicks\n"
    "WHERE NOT (n IN (1, 2) OR page RLIKE '^/x')",
    "SELECT user AS k, sum(n) AS n, max(at) AS last FROM clicks\n"
    "GROUP BY user, window(at, '1 hour')\n"
    "HAVING max(at) > current_timestamp() - INTERVAL 1 DAY",
    "SELECT count(*) AS n, w.end AS k FROM (SELECT *, window(at, '1 hour') AS w FROM clicks)\n"
    "GROUP BY w",
    "SELECT c.user AS k FROM clicks AS c CROSS JOIN customers AS d",
    "SELECT a.user AS k, b.page FROM clicks a JOIN clicks b ON a.user = b.user AND a.at = b.at",
    "FROM clicks SELECT user AS k",
    "SELECT user AS k FROM clicks WHERE at > (SELECT max(since) FROM customers)",
    "TABLE clicks",
    "SELECT IF(n > 1, 'a', 'b') AS k, n DIV 2 AS h, n % 2 AS r, -n AS m, NOT n > 1 AS b, page\n"
    "|| user AS c,\n"
    "n BETWEEN 1 AND 3 AS d, n >>> 1 AS e FROM clicks",
    "FROM clicks |> WHERE n > 1 |> SELECT user AS k",
    "SELECT user, page, window, grouping_id() AS g, count(*) AS n FROM clicks\n"
    "GROUP BY window(at, '1 hour'), user, page WITH ROLLUP",
    "SELECT USER AS k, AT FROM CLICKS c WHERE C.User <> 'x'",
    "SELECT user, count(1), max(n) + 1, window FROM clicks GROUP BY user, window(at, '1 hour')",
    "SELECT x.k, x.at FROM (SELECT user AS k, at FROM clicks UNION ALL SELECT user, seen FROM\n"
    "views) x",
    "SELECT at AS k, count(*) AS n FROM (SELECT coalesce(at, made) AS other, at FROM clicks)\n"
    "GROUP BY at",
    "SELECT order.id + 1 AS k, count(*) AS n FROM clicks GROUP BY order.id, window(at, '1 hour')",
    "SELECT upper(user) AS k, count(*) AS n FROM clicks GROUP BY upper(user), window(at, '1 hour')",
    "SELECT d.city AS k, window(c.at, '1 day') AS w, sum(c.n) AS n FROM clicks c JOIN customers d\n"
    "ON c.user = d.user WHERE d.since < c.at GROUP BY d.city, window(c.at, '1 day')",
    "SELECT max(at) AS t FROM clicks GROUP BY CUBE (user, window(at, '1 hour'))",
    "SELECT window(at, '1 hour') AS w, user, count(*) AS n FROM clicks\n"
    "GROUP BY GROUPING SETS ((window(at, '1 hour'), user), (window(at, '1 hour')))",
    "SELECT IDENTIFIER('user') AS k FROM clicks",
    "SELECT user AS k, at FROM clicks TABLESAMPLE (5 ROWS)",
    "SELECT user, w.start, count(*) FROM (SELECT user, window(at, '1 minute') AS w FROM clicks)\n"
    "GROUP BY user, w",
    "SELECT c.order.lines[0].sku AS k, clicks.at FROM clicks JOIN clicks c USING (user, at)",
    "SELECT l.sku, l.price FROM clicks LATERAL VIEW inline(order.lines) l",
    "SELECT posexplode(tags) FROM clicks",
    "SELECT posexplode(tags) AS (p, t), user FROM clicks",
    "SELECT json_tuple(page, 'a', 'b') AS (a, b) FROM clicks",
    "SELECT map_filter(props, (k, v) -> k = user) AS m FROM clicks",
    "SELECT user AS k FROM clicks c WHERE n = (SELECT max(1) FROM customers d WHERE d.user =\n"
    "c.user)",
    "SELECT c.user AS k FROM clicks c JOIN views v ON c.user = v.user\n"
    "AND c.at - INTERVAL 10 MINUTES < v.seen AND v.seen < c.at",
    "SELECT c.user AS k FROM (SELECT user, window(at, '1 hour') AS w FROM clicks) c LEFT JOIN\n"
    "(SELECT user, window(seen, '1 hour') AS w FROM views) v ON c.user = v.user AND c.w = v.w",
    "SELECT window(at, '1 hour').start AS k, count(*) AS n FROM clicks\n"
    "GROUP BY window(at, '1 hour')",
    "SELECT user AS k, page FROM clicks DISTRIBUTE BY user",
    "SELECT a, b FROM (SELECT user, at FROM clicks) AS u(a, b)",
    "SELECT user, max(struct(at, page)).page AS last FROM clicks\n"
    "GROUP BY user, window(at, '1 hour')",
    "SELECT user, page FROM clicks WHERE (user, page) IN (SELECT user, city FROM customers)",
    "SELECT k FROM (SELECT user AS k, n FROM clicks) UNPIVOT (v FOR name IN (n))",
    "SELECT window(at, '1 hour') AS w, count(*) AS n FROM (SELECT DISTINCT user, at FROM clicks)\n"
    "GROUP BY w",
    "SELECT c.user, t.x FROM clicks c, LATERAL (SELECT c.n + 1 AS x) t",
    "SELECT any_value(page) AS p, bool_or(n > 1) AS b, some(n > 2) AS s, any(n > 1) AS a,\n"
    "percentile_approx(n, 0.5) AS m, count_if(n > 1) AS c FROM clicks\n"
    "GROUP BY window(at, '1 hour')",
    "SELECT user AS k FROM clicks WHERE n IS DISTINCT FROM 3 AND user NOT LIKE ALL ('a', 'b')",
    'SELECT sum(n) AS s FROM clicks WHERE page = "a" GROUP BY window(at, "1 hour")',
    "SELECT parse_json(page):a.b::int AS k, parse_json(page):a[0] AS first FROM clicks",
    "SELECT v:a.b[0]::string AS k FROM (SELECT parse_json(page) AS v FROM clicks)",
    "FROM clicks |> EXTEND n + 1 AS m |> DROP page",
    "TABLE clicks |> SELECT user AS k",
    "SELECT user AS k FROM IDENTIFIER('clicks')",
    "SELECT user AS k FROM clicks LIMIT ALL",
    "SELECT TIME '10:00:00' AS k, user FROM clicks",
    "SELECT user, at FROM clicks EXCEPT SELECT user, since FROM customers",
    "SELECT user, at FROM clicks EXCEPT ALL SELECT user, since FROM customers",
    "SELECT sum(n) AS k FROM clicks GROUP BY window(at, 3600000000)",
    "SELECT sum(n) AS k FROM clicks GROUP BY window(at, \"INTERVAL '1' HOUR\", '30 minutes')",
    "SELECT c.on FROM (SELECT n AS on FROM clicks) c JOIN customers d ON c.on = d.user",
)
"""Statements that Spark and `validate` accept."""

REFUSED = (
    ("SELECT usr FROM clicks", "there is no column usr: did you mean user?"),
    ("SELECT c.usr FROM clicks c", "c has no column usr"),
    ("SELECT x.user FROM clicks c", "x is neither a view"),
    ("SELECT user FROM click", "there is no view click"),
    ("SELECT order.nr FROM clicks", "order has no field nr"),
    ("SELECT order.lines.prize FROM clicks", "lines has no field prize: did you mean price?"),
    ("SELECT user.name FROM clicks", "user is a string, which has no fields"),
    ("SELECT user FROM clicks c JOIN customers d ON c.user = d.user", "ambiguous"),
    ("SELECT cuont(user) FROM clicks", "there is no function cuont: did you mean count?"),
    (
        "SELECT user, page, count(*) FROM clicks GROUP BY user, window(at, '1 hour')",
        "page is neither",
    ),
    ("SELECT user FROM clicks ORDER BY at", "ORDER BY is not possible"),
    ("SELECT user FROM clicks SORT BY at", "SORT BY is not possible"),
    ("SELECT user FROM clicks LIMIT 5 OFFSET 3", "OFFSET is not possible"),
    ("SELECT row_number() OVER (PARTITION BY user ORDER BY at) AS r FROM clicks", "OVER (…)"),
    (
        "SELECT user FROM clicks QUALIFY row_number() OVER (PARTITION BY user ORDER BY at) = 1",
        "OVER (…)",
    ),
    ("SELECT count(DISTINCT user) AS n FROM clicks", "approx_count_distinct"),
    ("SELECT monotonically_increasing_id() AS id FROM clicks", "monotonically_increasing_id"),
    ("SELECT user FROM clicks TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
    ("SELECT user FROM clicks INTERSECT SELECT user FROM views", "INTERSECT"),
    ("SELECT user FROM customers EXCEPT SELECT user FROM views", "EXCEPT"),
    ("SELECT user FROM clicks UNION ALL SELECT user FROM customers", "cannot be united"),
    ("SELECT user, at FROM clicks UNION ALL SELECT user FROM views", "as many columns"),
    ("SELECT user FROM clicks WHERE user IN (SELECT user FROM views)", "cannot read a stream"),
    ("SELECT d.user FROM customers d LEFT JOIN clicks c ON c.user = d.user", "stream on the left"),
    (
        "SELECT c.user FROM clicks c RIGHT JOIN customers d ON c.user = d.user",
        "stream on the right",
    ),
    ("SELECT c.user FROM clicks c FULL JOIN customers d ON c.user = d.user", "full outer join"),
    ("SELECT d.user FROM customers d LEFT ANTI JOIN clicks c ON c.user = d.user", "anti join"),
    (
        "SELECT c.user FROM clicks c LEFT JOIN views v ON c.user = v.user",
        "needs a bound on the time",
    ),
    (
        "SELECT c.user FROM clicks c LEFT JOIN views v ON c.user = v.user AND c.at <= v.seen",
        "needs a bound on the time",
    ),
    (
        "SELECT c.user FROM clicks c LEFT JOIN bare b ON c.user = b.user AND c.at >= b.at",
        "needs a watermark on the right side",
    ),
    ("SELECT c.user FROM clicks c LEFT ANTI JOIN views v ON c.user = v.user", "anti join"),
    (
        "SELECT count(*) AS n FROM clicks GROUP BY window(at, '1 hour'), window(made, '1 hour')",
        "only one window",
    ),
    ("SELECT page FROM clicks JOIN customers USING (page)", "the right side has no column page"),
    ("SELECT user FROM clicks WHERE max(n) > 1", "cannot be in WHERE"),
    ("SELECT user, t.col FROM clicks, LATERAL explode(tgs) t", "there is no column tgs"),
    (
        "SELECT * FROM (SELECT user, page, n FROM clicks) PIVOT (sum(m) FOR page IN ('a'))",
        "there is no column m",
    ),
    (
        "SELECT * FROM (SELECT user, page, n FROM clicks) PIVOT (sum(n) FOR pag IN ('a'))",
        "there is no column pag",
    ),
    ("SELECT sum(n) AS k FROM clicks GROUP BY window(at, '1 minut')", "minut is not one of"),
    ("SELECT sum(n) AS k FROM clicks GROUP BY window(at, '5minutes')", "write `5 minutes`"),
    (
        "SELECT sum(n) AS k FROM clicks GROUP BY window(at, '1 hour', '2 hours')",
        "rows would be left out",
    ),
    ("SELECT sum(n) AS k FROM clicks GROUP BY window(at, '0 minutes')", "has no length"),
)
"""Statements that Spark refuses before it runs, with the message of `validate`."""

UNBOUNDED = (
    ("SELECT user, count(*) AS n FROM clicks GROUP BY user", "no key is at"),
    ("SELECT user, count(*) AS n FROM bare GROUP BY user", "Give the source a `watermark`"),
    ("SELECT window(made, '1 hour') AS w, count(*) AS n FROM clicks GROUP BY w", "over made"),
    ("SELECT date_trunc('hour', at) AS h, count(*) AS n FROM clicks GROUP BY h", "no key is at"),
    (
        "SELECT w.start AS s, count(*) AS n FROM (SELECT window(at, '1 hour') AS w FROM clicks)\n"
        "GROUP BY w.start",
        "no key is w or a window of it",
    ),
    ("SELECT DISTINCT user FROM clicks", "every row would be kept forever"),
    ("SELECT user FROM clicks EXCEPT SELECT user FROM customers", "would be kept forever"),
    ("SELECT user FROM clicks EXCEPT ALL SELECT user FROM customers", "would be kept forever"),
    ("SELECT c.user FROM clicks c JOIN views v ON c.user = v.user", "forever"),
    ("SELECT c.user FROM clicks c JOIN bare b ON c.user = b.user AND c.at > b.at", "right side"),
    (
        "SELECT c.user FROM clicks c JOIN views v ON c.user = v.user AND c.at >= v.seen",
        "rows of the right side forever",
    ),
)
"""Statements whose state Spark would keep forever, with the message of `validate`."""
