// What an application does with mysql2: text and prepared reads, a pool, transactions, streams, several statements, errors.

const assert = require('node:assert/strict');
const { setTimeout: sleep } = require('node:timers/promises');
const mysql = require('mysql2/promise');

const url = process.argv[2];

function print(what, value) {
  console.log(what, JSON.stringify(value));
}

/** Asks often enough that the later answers come from memory, and always expects the same. */
async function steady(name, ask) {
  const first = JSON.stringify(await ask());
  for (let round = 0; round < 15; round++) {
    await sleep(5);
    assert.equal(JSON.stringify(await ask()), first, name);
  }
  console.log(name, first);
}

async function main() {
  const db = await mysql.createConnection({ uri: url, multipleStatements: true, supportBigNumbers: true, dateStrings: true });
  await steady('text', async () => (await db.query('SELECT title, genre, votes AS text FROM film WHERE id = ?', [1]))[0]);
  await steady('prepared', async () => (await db.execute('SELECT title, votes AS prepared FROM film WHERE id = ?', [2]))[0]);
  await steady('list', async () => (await db.query('SELECT id, votes AS list FROM film WHERE id IN (?)', [[1, 2, 3]]))[0]);
  await steady('arrays', async () => (await db.query({ sql: 'SELECT id, votes AS arrays FROM film WHERE id = 5', rowsAsArray: true }))[0]);
  await steady('kinds', async () => (await db.execute('SELECT * FROM kinds ORDER BY id'))[0]);
  const [results] = await db.query('SELECT 1 AS a; SELECT title FROM film WHERE id = 1; DO 1');
  print('several', results);

  const [inserted] = await db.execute('INSERT INTO role (film_id, actor) VALUES (?, ?)', [1, 'new']);
  print('inserted', [inserted.affectedRows, inserted.insertId > 0]);
  await db.beginTransaction();
  const [[before]] = await db.query('SELECT COUNT(*) AS n FROM role WHERE film_id = 1');
  await db.query("DELETE FROM role WHERE actor = 'new'");
  const [[during]] = await db.query('SELECT COUNT(*) AS n FROM role WHERE film_id = 1');
  await db.rollback();
  const [[after]] = await db.query('SELECT COUNT(*) AS n FROM role WHERE film_id = 1');
  print('counts', [before.n - during.n, after.n - before.n]);
  await db.query("DELETE FROM role WHERE actor = 'new'");
  const [[last]] = await db.query('SELECT COUNT(*) AS n FROM role WHERE film_id = 1');
  print('last', last.n - during.n);

  for (const text of ['SELECT * FROM nothing', 'nonsense', "INSERT INTO film VALUES (1, 'x', NULL, 0)"]) {
    const error = await db.query(text).then(assert.fail, (e) => e);
    print('error', [error.code, error.errno, error.sqlState, error.sqlMessage]);
  }
  await db.changeUser({ database: new URL(url).pathname.slice(1) });
  await db.ping();
  const streamed = [];
  for await (const row of db.connection.query('SELECT id FROM film ORDER BY id').stream()) streamed.push(row.id);
  print('streamed', streamed.length);
  await db.end();

  const pool = mysql.createPool({ uri: url, connectionLimit: 4 });
  const asked = Array.from({ length: 40 }, (_, i) => pool.execute('SELECT title AS pooled FROM film WHERE id = ?', [(i % 5) + 1]));
  print('pooled', (await Promise.all(asked)).map(([rows]) => rows[0].pooled));
  await pool.end();
}

main();
