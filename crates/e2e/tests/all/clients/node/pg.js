// What an application does with node-postgres (`pg`): every form of query, cursors, COPY, a pool, pipelines, LISTEN.

const assert = require('node:assert/strict');
const { once } = require('node:events');
const { Readable } = require('node:stream');
const { pipeline } = require('node:stream/promises');
const { setTimeout: sleep } = require('node:timers/promises');
const { Client, Pool } = require('pg');
const Cursor = require('pg-cursor');
const { from: copyFrom, to: copyTo } = require('pg-copy-streams');

const url = process.argv[2];

function text(value) {
  return JSON.stringify(value, (_, v) => (v?.type === 'Buffer' ? Buffer.from(v.data).toString('hex') : v));
}

function print(what, value) {
  console.log(what, text(value));
}

async function main() {
  const client = new Client({ connectionString: url });
  client.on('notice', (notice) => print('notice', [notice.severity, notice.code, notice.message]));
  await client.connect();
  await reads(client);
  await writes(client);
  await errors(client);
  await cursors(client);
  await copies(client);
  await notifications(client);
  await pools();
  await pipelines();
  await client.end();
}

/** Asks often enough that the later answers come from memory, and always expects the same. */
async function steady(name, ask) {
  const first = await ask();
  for (let round = 0; round < 20; round++) {
    await sleep(10);
    assert.equal(text(await ask()), text(first), name);
  }
  print(name, first);
}

async function reads(client) {
  const ask = (query, values) => async () => {
    const { rows, fields, command, rowCount } = await client.query(query, values);
    return { rows, command, rowCount, fields: fields.map((f) => [f.name, f.dataTypeID, f.format]) };
  };
  await steady('simple', ask('select title, genre, votes as simple from film where id = 1'));
  await steady('unnamed', ask('select title, genre, votes as unnamed from film where id = $1', [2]));
  const named = { name: 'named', text: 'select title, genre, votes as named from film where id = $1' };
  await steady('named', ask({ ...named, values: [3] }));
  await steady('named again', ask({ ...named, values: [4] }));
  await steady('named, no row', ask({ ...named, values: [100000] }));
  const binary = { text: 'select title, votes as in_binary from film where id = $1', values: [1], binary: true };
  await steady('binary', ask(binary));
  await steady('arrays', ask({ text: 'select id, votes as arrays from film where votes < $1 order by id', values: [4],
    rowMode: 'array' }));
  await steady('a few rows', ask({ text: 'select id, votes as few from film where id < $1 order by id', values: [4], rows: 100 }));
  await steady('in parts', ask({ text: 'select id, votes as parts from film where id < $1 order by id', values: [9], rows: 3 }));
  await steady('kinds', ask('select * from kinds order by id'));
  await steady('kinds in binary', ask({ text: 'select * from kinds where id = $1', values: [1], binary: true }));
  await steady('several', async () =>
    (await client.query('select 1 as one; select votes from film where id = 1')).map((result) => result.rows));
}

async function writes(client) {
  const votes = async () => (await client.query('select votes as own from film where id = $1', [3])).rows[0].own;
  for (let n = 100; n < 130; n++) {
    const { rowCount } = await client.query('update film set votes = $1 where id = 3', [n]);
    assert.equal(rowCount, 1);
    for (let again = 0; again < 3; again++) assert.equal(await votes(), n);
  }
  await client.query('begin');
  await client.query('update film set votes = 0 where id = 3');
  assert.equal(await votes(), 0);
  await client.query('savepoint a');
  await assert.rejects(client.query('select nothing from film'), { code: '42703' });
  await assert.rejects(client.query('select 1'), { code: '25P02' });
  await client.query('rollback to a');
  await client.query('rollback');
  assert.equal(await votes(), 129);
  const { rows } = await client.query('insert into role (film_id, actor) values ($1, $2) returning *', [1, 'new']);
  print('returning', rows);
}

async function errors(client) {
  for (const query of [
    'select nothing from film',
    'select 1 / 0',
    'selec',
    { text: 'select $1::int', values: ['x'] },
    "insert into film values (1, 'twice')",
    { name: 'bad', text: 'select votes from film where no_column = $1', values: [1] },
  ]) {
    const error = await client.query(query).then(() => assert.fail('no error'), (error) => error);
    const { severity, code, message, detail, position, constraint, table, routine } = error;
    print('error', { severity, code, message, detail, position, constraint, table, routine });
  }
  await client.query("do $$ begin raise notice 'hello'; raise warning 'world'; end $$");
  await client.query('set statement_timeout = 50');
  await assert.rejects(client.query('select pg_sleep(10)'), { code: '57014' });
  await client.query('reset statement_timeout');
  const empty = await client.query('');
  print('empty', [empty.command, empty.rows]);
}

async function cursors(client) {
  const cursor = client.query(new Cursor('select id, votes as by_cursor from film where id < $1 order by id', [8]));
  const pages = [];
  for (let page = await cursor.read(3); page.length > 0; page = await cursor.read(3)) pages.push(page);
  await cursor.close();
  assert.deepEqual(pages.map((page) => page.length), [3, 3, 1]);
  print('cursor', pages);
  const left = client.query(new Cursor('select generate_series(1, 100000)'));
  assert.equal((await left.read(10)).length, 10);
  await left.close();
  assert.equal((await client.query('select 1 as one')).rows[0].one, 1);
}

async function copies(client) {
  const rows = Array.from({ length: 2000 }, (_, i) => `${(i % 200) + 1}\tcopied ${i}\n`);
  await pipeline(Readable.from(rows), client.query(copyFrom('copy role (film_id, actor) from stdin')));
  const { rows: [{ count }] } = await client.query("select count(*) from role where actor like 'copied%'");
  assert.equal(count, '2000');
  let copied = '';
  for await (const chunk of client.query(copyTo('copy (select * from role order by id) to stdout'))) copied += chunk;
  assert.equal(copied.split('\n').length, 2502);
  print('copied', copied.slice(0, 100));
  const wrong = pipeline(Readable.from(['x\ty\n']), client.query(copyFrom('copy role (film_id, actor) from stdin')));
  await assert.rejects(wrong, { code: '22P02' });
}

async function notifications(client) {
  await client.query('listen channel');
  const heard = once(client, 'notification');
  const other = new Client({ connectionString: url });
  await other.connect();
  await other.query("select pg_notify('channel', $1)", ['hello']);
  const [{ channel, payload }] = await heard;
  print('notification', [channel, payload]);
  await other.end();
}

async function pools() {
  const pool = new Pool({ connectionString: url, max: 4 });
  await steady('pool', async () => {
    const ids = Array.from({ length: 20 }, (_, i) => i + 1);
    const ask = (id) => pool.query('select id, votes as pooled from film where id = $1', [id]);
    return (await Promise.all(ids.map(ask))).map(({ rows }) => rows[0]);
  });
  // What was written on one connection is soon seen on all others.
  await pool.query('update film set votes = 77 where id = 50');
  const seen = async () => (await pool.query('select votes as other from film where id = 50')).rows[0].other === 77;
  for (let tries = 0; !(await Promise.all([seen(), seen(), seen(), seen()])).every(Boolean); tries++) {
    assert(tries < 500, 'the write is never seen');
    await sleep(10);
  }
  await pool.end();
}

async function pipelines() {
  const client = new Client({ connectionString: url, pipeline: true });
  await client.connect();
  await steady('pipeline', async () => {
    const ids = Array.from({ length: 30 }, (_, i) => i + 1);
    const ask = (id) => client.query({ name: 'piped', text: 'select id, votes as pipelined from film where id = $1',
      values: [id] });
    const asked = ids.map(ask);
    const failed = client.query('select 1 / $1::int', [0]).catch((error) => error.code);
    const after = ask(5);
    assert.equal(await failed, '22012');
    return (await Promise.all([...asked, after])).map(({ rows }) => rows[0]);
  });
  await client.end();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
