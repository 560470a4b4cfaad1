# ruff: noqa: E501
"""Everything that can be wrong with a file: each mistake, its path, and the message."""

import pytest
import yaml

from tailrace.errors import ConfigurationError
from tests.configuration import loads
from tests.unit.config.files import minimal, problems

MISTAKES = """\
scopes: [] | scopes | needs at least one entry
scopes: {name: a} | scopes | must be a list, not a mapping
scopes: [a] | scopes[0] | must be a mapping, not 'a'
handlers: [log] | handlers | must be a mapping, not a list
http: 9464 | http | must be a mapping, not 9464
nonsense: 1 | nonsense | known here: mongodb, store, checkpoint, delivery
mongodb: {} | mongodb.uri | is required: The connection string
mongodb: {uri: 'localhost:27017'} | mongodb.uri | mongodb://… or mongodb+srv://…
mongodb: {url: x} | mongodb.url | did you mean 'uri'?
mongodb: {uri: 'mongodb://h', driver: pymongoo} | mongodb.driver | must be motor or pymongo, not 'pymongoo'; did you mean 'pymongo'?
store: {type: redis} | store.type | must be sqlite, mongodb or mem
store: sqlite | store | must be a mapping with the key type
store: {type: mongodb, path: x} | store.path | belongs to type: sqlite, not to type: mongodb
store: {pth: x} | store.pth | did you mean 'path'?
store: {path: ' '} | store.path | must not be empty
checkpoint: {interval_seconds: 0} | checkpoint.interval_seconds | must be greater than 0, not 0
store: {type: mongodb, database: a.b} | store.database | a collection is named apart from it
delivery: {lanes: true} | delivery.lanes | must be a whole number, not true
delivery: {lanes: '1000'} | delivery.lanes | must be a whole number, not '1000'; take the quotes away
delivery: {max_in_flight_bytes: 64 MB} | delivery.max_in_flight_bytes | must be a whole number, not '64 MB'
delivery: {retry: {first_seconds: 60}} | delivery.retry.cap_seconds | must not be below first_seconds, which is 60
delivery: {on_failure: dead-letter} | delivery.on_failure | must be dead_letter or halt, not 'dead-letter'; did you mean 'dead_letter'?
catch_up: {streams: 0} | catch_up.streams | must be at least 1: a handler that falls behind needs a stream of its own to catch up
catch_up: {streams: -3} | catch_up.streams | must be at least 1: a handler
catch_up: {streams: two} | catch_up.streams | must be a whole number, not 'two'
catch_up: 3 | catch_up | must be a mapping, not 3
supervisor: {cap_seconds: 172800} | supervisor.cap_seconds | at most 86400
shutdown: {grace_seconds: -1} | shutdown.grace_seconds | must be at least 0
http: {port: 65536} | http.port | must be at most 65535, not 65536
replicas: {lease_seconds: 0.5} | replicas.lease_seconds | must be at least 1
replicas: {name: 'a b'} | replicas.name | hold only letters, digits
store: {type: memory}, replicas: {max_scopes: 3} | store.type | memory shares nothing with other processes
logging: {format: 1} | logging.format | must be auto, json or console, not 1
scopes: [{}] | scopes[0].name | is required: The name of the scope in logs
scope: {name: 5} | scopes[0].name | must be text, not 5; put it in quotes
scope: {name: a b} | scopes[0].name | hold only letters, digits
scope: {batchsize: 1} | scopes[0].batchsize | did you mean 'batch_size'?
scope: {batch_size: 2147483648} | scopes[0].batch_size | must be at most 2147483647
scope: {database: a/b} | scopes[0].database | cannot hold /
scope: {database: éééééééééééééééééééééééééééééééé} | scopes[0].database | at most 63 bytes
scope: {database: shop.orders} | scopes[0].database | a collection is named apart from it
scope: {collection: system.views} | scopes[0].collection | no change stream on system
scope: {split_large_events: 'true'} | scopes[0].split_large_events | must be true or false, not 'true'; take the quotes away
scope: {read_preference: secondaryprefered} | scopes[0].read_preference | did you mean 'secondaryPreferred'?
scope: {collation: en} | scopes[0].collation | must be a mapping, not 'en'
handlers: {log: {type: python, target: 'a:b', order: key}}, scope: {transactions: grouped} | scopes[0].transactions | grouped does not fit handler 'log': its order: key divides transactions
handlers: {log: {type: http, url: 'http://a', batch_size: 2, concurrency: 2}}, scope: {transactions: grouped} | scopes[0].transactions | 'log': its concurrency: 2 divides transactions
scope: {snapshot: {parallel: 5}} | scopes[0].snapshot.parallel | must be at most 4
scope: {snapshot: {parallel: 2}}, delivery: {max_in_flight_bytes: 1} | scopes[0].snapshot.parallel | must be at most 1: twice as many chunks of 4194304 bytes fit half of delivery.max_in_flight_bytes
scope: {snapshot: {filter: {a: "\\ud800"}}} | scopes[0].snapshot.filter | holds a value that BSON cannot store
scope: {snapshot: {filter: {"a\\0": 1}}} | scopes[0].snapshot.filter | must not contain the NULL byte
scope: {pipeline: [{$match: {"\\udfff": 1}}]} | scopes[0].pipeline[0] | holds a value that BSON cannot store
scope: {pipeline: [{$match: {at: 9999-12-31T23:59:59-05:00}}]} | scopes[0].pipeline[0] | date value out of range
scope: {comment: {a: "\\ud800"}} | scopes[0].comment | holds a value that BSON cannot store
scope: {collection: "\\ud800"} | scopes[0].collection | holds a value that BSON cannot store
scope: {database: "\\ud800"} | scopes[0].database | holds a value that BSON cannot store
scope: {start_at: yesterday} | scopes[0].start_at | must be now, or an ISO 8601 time
scope: {start_at: '2024-05-01T00:00:00'} | scopes[0].start_at | with an offset
scope: {start_at: '1969-12-31T23:59:59Z'} | scopes[0].start_at | between 1970 and 2106
scope: {pipeline: [$match]} | scopes[0].pipeline[0] | must be a mapping, not '$match'
scope: {pipeline: [{match: 1}]} | scopes[0].pipeline[0] | one key, such as $match
scope: {pipeline: [{$changeStream: {}}]} | scopes[0].pipeline[0] | put in front by
scope: {full_document: lookup, pipeline: [{$match: {fullDocument.total: {$gt: 5}}}]} | scopes[0].pipeline[0] | names fullDocument, which updates get only after the pipeline with full_document: lookup
scope: {full_document: lookup, pipeline: [{$unset: [fullDocument]}]} | scopes[0].pipeline[0] | $unset changes or removes fullDocument, which full_document: lookup needs
scope: {full_document: lookup, pipeline: [{$match: {}}, {$match: {$expr: {$gt: [$fullDocument.total, 5]}}}]} | scopes[0].pipeline[1] | or full_document: updateLookup
scope: {full_document: lookup, pipeline: [{$set: {total: $$ROOT.fullDocument.total}}]} | scopes[0].pipeline[0] | names fullDocument
pipeline: {columns: {orders: {}}} | pipeline.columns.orders | must be written database.collection
pipeline: {columns: {shop.orders: {a: number}}} | pipeline.columns['shop.orders'].a | must be string, long, double, boolean, timestamp, decimal, objectId or json, not 'number'
pipeline: {columns: {shop.orders: {a..b: long}}} | pipeline.columns['shop.orders']['a..b'] | must be the path of a field, as in customer.name
pipeline: {columns: {shop.orders: {Key: long}}} | pipeline.columns['shop.orders'].Key | every table has a column of that name; give this one another: NAME: {path: Key, type: …}
pipeline: {columns: {shop.orders: {total: long, Total: long}}} | pipeline.columns['shop.orders'] | 'total' and 'Total' are one column to Spark
pipeline: {columns: {shop.orders: {a: {path: x, type: long}, b: {path: x, type: double}}}} | pipeline.columns['shop.orders'] | 'a' and 'b' both read x: keep one of them
pipeline: {columns: {shop.orders: {a: {path: x, type: number}}}} | pipeline.columns['shop.orders'].a.type | must be string, long, double, boolean, timestamp, decimal, objectId, json or auto, not 'number'
pipeline: {columns: {shop.orders: {a: auto}}} | pipeline.columns['shop.orders'] | 'a': auto is for '*' alone
pipeline: {columns: {shop.orders: {"*": long}}} | pipeline.columns['shop.orders'] | '*': auto is for '*' alone
pipeline: {columns: {"*": {a: long}}} | pipeline.columns | '*': must be auto
pipeline: {columns: automatic} | pipeline.columns | must be a mapping, not 'automatic'
pipeline: {columns: {shop.orders: {a: {path: x.., type: long}}}} | pipeline.columns['shop.orders'].a.path | must be the path of a field, as in customer.name
pipeline: {columns: {shop.orders: {a: {path: x}}}} | pipeline.columns['shop.orders'].a.type | is required: The type of the column
pipeline: {columns: {shop.orders: {of it: long}}} | pipeline.columns['shop.orders']['of it'] | a column's name must not have ' '; give it a name: NAME: {path: 'of it', type: …}
handler: {type: jsonl} | handlers.mine.path | is required: The file
handler: {type: jsnl} | handlers.mine.type | or python, not 'jsnl'; did you mean 'jsonl'
handler: {path: x} | handlers.mine.type | is required: log, jsonl, parquet,
handler: {type: log, path: x} | handlers.mine.path | belongs to type: jsonl, not to
handler: {type: postgresql, dsn: 'host=x'} | handlers.mine | needs either table (such as "{collection}") or log
handler: {type: postgresql, dsn: 'host=x', table: a, log: b} | handlers.mine | needs either table
handler: {type: postgresql, dsn: 'host=x', table: '{prefix}_a'} | handlers.mine | not {prefix}
handler: {type: postgresql, dsn: 'host=x', table: a, columns: {a: varchar}} | handlers.mine.columns.a | must be one of text, boolean
handler: {type: postgresql, dsn: 'host=x', table: a, columns: {a: auto}} | handlers.mine | columns: a: auto is for '*' alone
handler: {type: postgresql, dsn: 'host=x', table: a, columns: {"*": text}} | handlers.mine | columns: *: auto is for '*' alone
handler: {type: postgresql, dsn: 'host=x', table: a, columns: automatic} | handlers.mine.columns | must be a mapping, not 'automatic'
handler: {type: postgresql, dsn: 'host=x', log: a, columns: auto} | handlers.mine | columns belong to a table
handler: {type: postgresql, dsn: 'host=x', table: a, columns: auto, columns_limit: 2000} | handlers.mine | columns_limit can be at most 1000
handler: {type: postgresql, dsn: 'host=x', table: a, columns: {a..b: text}} | handlers.mine.columns['a..b'] | must be the path of a field
handler: {type: postgresql, dsn: 'host=x', table: a, columns: {a.b: text, a_b: text}} | handlers.mine | columns a.b and a_b would both be the column 'a_b'
handler: {type: postgresql, dsn: 'host=x', table: a, columns: {key: text}} | handlers.mine | 'key', which has another meaning
handler: {type: postgresql, dsn: 'host=x', log: a, columns: {a: text}} | handlers.mine | columns belong to a table
handler: {type: postgresql, dsn: 'host=x', log: a, soft_delete: true} | handlers.mine | soft_delete belongs to a table
handler: {type: postgresql, dsn: {file: /nowhere}, log: a} | handlers.mine.dsn | cannot be read
handler: {type: mongodb, uri: 'mongodb://a', database: '{database}'} | handlers.mine | set state_database
handler: {type: mongodb, uri: 'mongodb://a', database: a.b} | handlers.mine | database cannot be admin, config or local
handler: {type: mongodb, uri: 'mongodb://a', database: '{prefix}', collection: a} | handlers.mine | not {prefix}
handler: {type: mongodb, uri: 'mongodb://a', database: a, collection: b, outbox: c} | handlers.mine | collection belongs to a mirror
handler: {type: mongodb, uri: 'mongodb://a', database: '{scope}', outbox: c} | handlers.mine | an outbox is in one database
handler: {type: mongodb, uri: 'mongodb://a', database: a, batch_bytes: 100000000} | handlers.mine | batch_bytes can be at most 67108864
handler: {type: log, lvl: x} | handlers.mine.lvl | did you mean 'level'?
handler: {type: parquet, path: x, documents: relaxed} | handlers.mine.documents | must be bson or canonical, not 'relaxed'
handler: {type: parquet, path: x, retry: {attempts: 3}} | handlers.mine.retry | belongs to
handler: {type: log, retry: {path: x}} | handlers.mine.retry.path | known here: attempts, first
handler: {type: jsonl, path: x, json_format: relaxed} | handlers.mine.json_format | no
handlers: {log: null} | handlers.log | must be a mapping with the key type
handlers: {a b: {type: log}} | handlers['a b'] | must begin with a letter
handler: {type: python, target: a.b.c} | handlers.mine.target | package.module:name
handler: {type: python, target: 'a:b()'} | handlers.mine.target | package.module:name
routes: [{handlers: [log]}] | routes[0].scope | is required: The name of the scope
route: {handlers: []} | routes[0].handlers | needs at least one entry
route: {operations: []} | routes[0].operations | leave the key out for all
route: {namespaces: []} | routes[0].namespaces | leave the key out for all
route: {namespaces: [shop]} | routes[0].namespaces[0] | database.collection
route: {start_at: yesterday} | routes[0].start_at | must be now, or an ISO 8601 time
route: {snapshot: always} | routes[0].snapshot.mode | must be never or initial, not 'always'
route: {snapshot: {fliter: {}}} | routes[0].snapshot.fliter | did you mean 'filter'?
route: {snapshot: {parallel: 5}} | routes[0].snapshot.parallel | must be at most 4
route: {verify: 24h} | routes[0].verify | must be a mapping, not '24h'
route: {verify: {}} | routes[0].verify.every | is required: How long after the end
route: {verify: {every: 0}} | routes[0].verify.every | must be a number with a unit (s, m, h or d), such as 24h or 90m
route: {max_lag: 30} | routes[0].max_lag | must be a number with a unit (s, m, h or d), such as 30s or 5m
route: {max_lag: 0.5s} | routes[0].max_lag | must be at least 1s and at most 366d
route: {verify: {every: 24}} | routes[0].verify.every | must be a number with a unit
route: {verify: {every: 59s}} | routes[0].verify.every | must be at least 1m and at most 366d
route: {verify: {every: -1h}} | routes[0].verify.every | must be a number with a unit
route: {verify: {every: 400d}} | routes[0].verify.every | must be at least 1m and at most 366d
route: {verify: {every: 1d, documents_per_second: -1}} | routes[0].verify.documents_per_second | must be at least 0, not -1
scope: {pipeline: [{$match: {}}]}, route: {verify: {every: 1d}} | routes[0].verify | does not fit scope 'orders': with a pipeline, its rows are not whole documents
routes: [{scope: orders, handlers: [log], verify: {every: 24h}}, {scope: orders, handlers: [log], verify: {every: 1h}}] | routes[1].verify | differs from routes[0].verify: handler 'log' is verified in one way in scope 'orders'
routes: [{scope: orders, handlers: [log], max_lag: 30s}, {scope: orders, handlers: [log], max_lag: 1m}] | routes[1].max_lag | differs from routes[0].max_lag: handler 'log' is watched in one way in scope 'orders'
routes: [{scope: orders, handlers: [log], snapshot: initial}, {scope: orders, handlers: [log], snapshot: never}] | routes[1].snapshot | differs from routes[0].snapshot: handler 'log' begins in one way in scope 'orders'
routes: [{scope: orders, handlers: [log]}, {scope: orders, handlers: [log], start_at: now}, {scope: orders, handlers: [log], start_at: '2024-05-01T00:00:00Z'}] | routes[2].start_at | differs from routes[1].start_at: handler 'log'
route: {scope: ordrs} | routes[0].scope | there is no scope 'ordrs'; did you mean 'orde
route: {scope: x} | routes[0].scope | there is no scope 'x'; known: 'orders'
route: {handlers: [lgo]} | routes[0].handlers[0] | no handler 'lgo'; did you mean 'log'
route: {handlers: [log, log]} | routes[0].handlers[1] | 'log' is given twice
handlers: {} | routes[0].handlers[0] | there is no handler 'log'
scopes: [{name: a, database: x}, {name: a, database: y}], routes: [{scope: a, handlers: [log]}, {scope: a, handlers: [log]}] | scopes[1].name | is the name of scopes[0] already
scopes: [{name: orders, database: shop}, {name: b, database: x}] | scopes[1] | no route hands the changes of 'b' to a handler
scopes: [{name: a, collection: c}], route: {scope: a} | scopes[0].collection | needs the key database
scope: {database: admin} | scopes[0].database | opens no change stream on admin
scopes: [{name: a}], route: {scope: a}, store: {type: mongodb} | scopes[0] | follows the whole cluster, and so tailrace, where checkpoints and dead letters are kept
scope: {name: a, database: tailrace}, route: {scope: a}, store: {type: mongodb} | scopes[0] | give the store another database
scope: {name: a, collection: dead_letters}, route: {scope: a}, store: {type: mongodb, database: shop} | scopes[0] | follows shop, where checkpoints and dead letters are kept
scope: {name: a, collection: desired_states}, route: {scope: a}, store: {type: mongodb, database: shop} | scopes[0] | follows shop, where checkpoints and dead letters are kept
scope: {name: a, collection: verifications}, route: {scope: a}, store: {type: mongodb, database: shop} | scopes[0] | follows shop, where checkpoints and dead letters are kept
handlers: {log: {type: jsonl, path: data/x.jsonl}, b: {type: jsonl, path: ./data//x.jsonl}} | handlers.b.path | './data//x.jsonl' is written by handlers.log.path already
handler: {type: jsonl, path: data/tailrace.db} | handlers.mine.path | is written by store.path already
scope: {database: x, max_await_time_ms: 5000}, http: {liveness_seconds: 5} | scopes[0].max_await_time_ms | must be less than http.liveness_seconds (5 s)
"""
"""The addition to the smallest file | the path | a part of the message."""

ROWS = [tuple(row.split(" | ")) for row in MISTAKES.splitlines()]


@pytest.mark.parametrize(("written", "path", "message"), ROWS)
def test_a_mistake_is_told_with_its_path(written: str, path: str, message: str) -> None:
    data = yaml.safe_load(f"{{{written}}}")
    # Keys that the models do not know are added unchanged.
    unknown = {"scope": data.pop("scope")} if data.get("scope") == [] else {}
    found = problems({**minimal(**data), **unknown})
    assert path in found
    assert message in found[path]
    assert len(found[path]) < 330
    assert "Input should" not in found[path]


def test_every_mistake_is_told_at_once_in_the_order_of_the_file_and_with_its_line() -> None:
    text = """\
routes:
  - scope: ordrs
    handlers: [log, audt]
mongodb:
  uri: ${URI}
  drivr: motor
scopes:
  - name: orders
    database: ${DB}
    batch_size: "5"
    start_at: 2024-05-01T00:00:00
handlers:
  audit: {type: jsonl}
  log: {type: log, level: loud}
http: {port: 1, port: 2}
"""
    with pytest.raises(ConfigurationError) as caught:
        loads(text, {})
    assert [(problem.path, problem.line) for problem in caught.value.problems] == [
        ("routes[0].scope", 2),
        ("routes[0].handlers[1]", 3),
        ("mongodb.uri", 5),
        ("mongodb.drivr", 6),
        ("scopes[0].database", 9),
        ("scopes[0].batch_size", 10),
        ("scopes[0].start_at", 11),
        ("handlers.audit.path", 13),
        ("handlers.log.level", 14),
        ("http.port", 15),
    ]
    assert str(caught.value.problems[3]) == (
        "mongodb.drivr: is not a known key; did you mean 'driver'? (line 6)"
    )


def test_a_scope_whose_name_cannot_be_read_is_not_called_missing() -> None:
    assert list(problems(minimal(scopes=[{"name": 5, "database": "x"}]))) == ["scopes[0].name"]
