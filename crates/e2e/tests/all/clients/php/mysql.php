<?php
// What an application does with mysqli and PDO: text, emulated and native statements, transactions, several results.

$url = parse_url($argv[1]);
$database = ltrim($url['path'], '/');

function show(string $what, mixed $value): void
{
    echo $what, ' ', json_encode($value), "\n";
}

/** Asks often enough that the later answers come from memory, and always expects the same. */
function steady(string $name, callable $ask): void
{
    $first = $ask();
    for ($round = 0; $round < 15; $round++) {
        usleep(5000);
        if ($ask() != $first) {
            throw new Exception("$name: another answer");
        }
    }
    show($name, $first);
}

mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
$db = new mysqli($url['host'], $url['user'], $url['pass'], $database, $url['port']);
$db->set_charset('utf8mb4');
show('charset', $db->character_set_name());
steady('text', fn () => $db->query('SELECT id, title, votes AS text FROM film WHERE id < 4 ORDER BY id')->fetch_all(MYSQLI_ASSOC));
$statement = $db->prepare('SELECT title, votes AS prepared FROM film WHERE id = ? OR title = ?');
steady('prepared', function () use ($statement) {
    $statement->execute([3, 'film 9']);
    return $statement->get_result()->fetch_all();
});
steady('unbuffered', fn () => iterator_to_array($db->query('SELECT id AS unbuffered FROM film WHERE id < 9', MYSQLI_USE_RESULT)));
steady('kinds', fn () => array_map('strval', $db->query('SELECT * FROM kinds WHERE id = 1')->fetch_row()));
$db->multi_query('SELECT 1; SELECT title FROM film WHERE id = 1; UPDATE film SET votes = votes WHERE id = 1');
do {
    $result = $db->store_result();
    show('several', $result ? $result->fetch_all() : $db->affected_rows);
} while ($db->more_results() && $db->next_result());
$db->begin_transaction();
$db->query("INSERT INTO role (film_id, actor) VALUES (1, 'new')");
show('inserted', $db->insert_id > 0);
show('during', $db->query("SELECT COUNT(*) FROM role WHERE actor = 'new'")->fetch_row());
$db->rollback();
show('after', $db->query("SELECT COUNT(*) FROM role WHERE actor = 'new'")->fetch_row());
foreach (['SELECT * FROM nothing', 'nonsense', "INSERT INTO film VALUES (1, 'x', NULL, 0)"] as $text) {
    try {
        $db->query($text);
    } catch (mysqli_sql_exception $error) {
        show('error', [$error->getCode(), $error->getSqlState(), $error->getMessage()]);
    }
}
$db->change_user($url['user'], $url['pass'], $database);
show('stat', $db->ping());
$db->close();

foreach (['emulated' => true, 'native' => false] as $name => $emulated) {
    $options = [PDO::ATTR_EMULATE_PREPARES => $emulated, PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION];
    $pdo = new PDO("mysql:host={$url['host']};port={$url['port']};dbname=$database;charset=utf8mb4", $url['user'], $url['pass'], $options);
    $statement = $pdo->prepare("SELECT title, genre, votes AS $name FROM film WHERE id = :id");
    steady($name, function () use ($statement) {
        $statement->execute(['id' => 7]);
        return $statement->fetchAll(PDO::FETCH_ASSOC);
    });
    $pdo->setAttribute(PDO::ATTR_AUTOCOMMIT, 0);
    steady("$name, without autocommit", fn () => $pdo->query('SELECT title FROM film WHERE id = 8')->fetchAll());
    $pdo->exec("DELETE FROM role WHERE actor = 'new'");
    $pdo->commit();
    show('kinds', array_map('strval', $pdo->query('SELECT * FROM kinds WHERE id = 1')->fetch(PDO::FETCH_NUM)));
}
