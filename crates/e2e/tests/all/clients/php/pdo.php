<?php
// What an application does with PDO for PostgreSQL: prepared by the server and emulated, lazy fetches, cursors, large
// objects, COPY, LISTEN, persistent connections.

declare(strict_types=1);

$at = parse_url($argv[1]);
$dsn = sprintf('pgsql:host=%s;port=%d;dbname=%s', $at['host'], $at['port'], ltrim($at['path'], '/'));

function connect(array $options = []): PDO
{
    global $dsn, $at;
    return new PDO($dsn, $at['user'], $at['pass'], $options + [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
}

function show(string $what, mixed $value): void
{
    echo $what, ' ', json_encode($value, JSON_THROW_ON_ERROR), "\n";
}

function expect(string $what, mixed $got, mixed $expected): void
{
    if ($got !== $expected) {
        throw new Exception("$what: " . json_encode($got) . ', not ' . json_encode($expected));
    }
}

/** Asks often enough that the later answers come from memory, and always expects the same. */
function steady(string $what, callable $ask): void
{
    $first = $ask();
    for ($round = 0; $round < 20; $round++) {
        usleep(10_000);
        expect($what, $ask(), $first);
    }
    show($what, $first);
}

function rows(PDOStatement $statement, array $parameters = []): array
{
    $statement->execute($parameters);
    $rows = $statement->fetchAll(PDO::FETCH_ASSOC);
    // A bytea comes as a stream.
    $plain = fn($value) => is_resource($value) ? bin2hex(stream_get_contents($value)) : $value;
    return array_map(fn($row) => array_map($plain, $row), $rows);
}

function reads(PDO $db, string $mode): void
{
    $read = "select title, genre, votes as $mode from film where id = ";
    steady("$mode query", fn() => $db->query("{$read}1")->fetchAll(PDO::FETCH_NUM));
    $prepared = $db->prepare("$read:id");
    steady("$mode prepared", fn() => rows($prepared, ['id' => 2]));
    steady("$mode no row", fn() => rows($prepared, ['id' => 100000]));
    steady("$mode again", fn() => rows($db->prepare("$read?"), [3]));
    $typed = $db->prepare("select id, votes as {$mode}_typed from film where id < ? and title <> ? order by id");
    $typed->bindValue(1, 4, PDO::PARAM_INT);
    $typed->bindValue(2, "it's", PDO::PARAM_STR);
    steady("$mode typed", fn() => $typed->execute() ? $typed->fetchAll(PDO::FETCH_KEY_PAIR) : null);
    steady("$mode kinds", fn() => rows($db->prepare('select * from kinds order by id')));
}

function fetches(PDO $db): void
{
    $statement = $db->query('select id, title from film order by id limit 3');
    $seen = [];
    while ($row = $statement->fetch(PDO::FETCH_LAZY)) {
        $seen[] = [$row->id, $row->title];
    }
    show('lazy', $seen);
    show('columns', array_map(fn($i) => $statement->getColumnMeta($i)['native_type'], [0, 1]));
    $scroll = $db->prepare('select id from film order by id', [PDO::ATTR_CURSOR => PDO::CURSOR_SCROLL]);
    $db->beginTransaction();
    $scroll->execute();
    $at = fn(int $how, int $where = 0) => $scroll->fetch(PDO::FETCH_NUM, $how, $where)[0];
    show('scroll', [$at(PDO::FETCH_ORI_NEXT), $at(PDO::FETCH_ORI_LAST), $at(PDO::FETCH_ORI_PRIOR), $at(PDO::FETCH_ORI_ABS, 7)]);
    $db->commit();
}

function writes(PDO $db): void
{
    $write = $db->prepare('update film set votes = ? where id = 3');
    $read = $db->prepare('select votes as own from film where id = ?');
    for ($n = 0; $n < 30; $n++) {
        $write->execute([$n]);
        expect('updated', $write->rowCount(), 1);
        for ($again = 0; $again < 3; $again++) {
            expect('own write', rows($read, [3])[0]['own'], $n);
        }
    }
    $db->beginTransaction();
    $write->execute([1000]);
    expect('in the transaction', rows($read, [3])[0]['own'], 1000);
    $db->rollBack();
    expect('after it', rows($read, [3])[0]['own'], 29);
    $db->exec("insert into role (film_id, actor) values (1, 'new')");
    show('last id', $db->lastInsertId());
}

function failures(PDO $db): void
{
    foreach (['select nothing from film', 'select 1 / 0', 'selec', "insert into film values (1, 'x')"] as $sql) {
        foreach ([fn() => $db->query($sql), fn() => $db->prepare($sql)->execute()] as $attempt) {
            try {
                $attempt();
                throw new Exception('no error');
            } catch (PDOException $error) {
                show('error', [$error->errorInfo, $error->getMessage()]);
            }
        }
    }
    $db->exec('set statement_timeout = 50');
    try {
        $db->query('select pg_sleep(60)');
        throw new Exception('no error');
    } catch (PDOException $error) {
        expect('timeout', $error->getCode(), '57014');
    }
    $db->exec('reset statement_timeout');
}

function large_objects(PDO $db): void
{
    $insert = $db->prepare('insert into kinds (id, bytes) values (?, ?)');
    $file = fopen('php://memory', 'w+');
    fwrite($file, random_bytes(10) . str_repeat("\0\xff'", 1000));
    rewind($file);
    $insert->bindValue(1, 10, PDO::PARAM_INT);
    $insert->bindValue(2, $file, PDO::PARAM_LOB);
    $insert->execute();
    $read = $db->prepare('select bytes from kinds where id = ?');
    steady('bytea', fn() => substr(rows($read, [10])[0]['bytes'], 20) === str_repeat('00ff27', 1000));
    $db->beginTransaction();
    $oid = $db->pgsqlLOBCreate();
    fwrite($db->pgsqlLOBOpen($oid, 'w'), str_repeat('large ', 10000));
    expect('large object', strlen(stream_get_contents($db->pgsqlLOBOpen($oid))), 60000);
    $db->pgsqlLOBUnlink($oid);
    $db->commit();
}

function copies(PDO $db): void
{
    $lines = array_map(fn($i) => ($i % 200 + 1) . "\tcopied $i", range(0, 1999));
    expect('copied in', $db->pgsqlCopyFromArray('role', $lines, "\t", '\\\\N', 'film_id, actor'), true);
    $count = $db->query("select count(*) from role where actor like 'copied%'")->fetchColumn();
    expect('count', $count, 2000);
    $copied = $db->pgsqlCopyToArray('role', "\t", '\\\\N', 'film_id, actor');
    expect('copied out', count($copied), 2501);
    show('copy', array_slice($copied, 0, 3));
}

function notifications(PDO $db): void
{
    $db->exec('listen channel');
    connect()->exec("notify channel, 'hello'");
    $heard = $db->pgsqlGetNotify(PDO::FETCH_ASSOC, 10_000);
    show('notification', [$heard['message'], $heard['payload']]);
}

$db = connect();
reads($db, 'native');
reads(connect([PDO::ATTR_EMULATE_PREPARES => true]), 'emulated');
reads(connect([PDO::PGSQL_ATTR_DISABLE_PREPARES => true]), 'unprepared');
reads(connect([PDO::ATTR_PERSISTENT => true]), 'persistent');
fetches($db);
writes($db);
failures($db);
large_objects($db);
copies($db);
notifications($db);
