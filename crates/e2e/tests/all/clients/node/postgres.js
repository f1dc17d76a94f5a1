// What an application does with `postgres` for Node: statements prepared by themselves, pipelines, cursors, LISTEN,
// transactions with savepoints, COPY as streams, cancelled queries.

const assert = require('node:assert/strict');
const { Readable } = require('node:stream');
const { pipeline } = require('node:stream/promises');
const { setTimeout: sleep } = require('node:timers/promises');
const postgres = require('postgres');

const url = process.argv[2];

function text(value) {
  const plain = (_, v) => (v?.type === 'Buffer' ? Buffer.from(v.data).toString('hex') : typeof v === 'bigint' ? `${v}` : v);
  return JSON.stringify(value, plain);
}

function print(what, value) {
  console.log(what, text(value));
}

async function main() {
  const onnotice = ({ severity, code, message }) => print('notice', [severity, code, message]);
  const sql = postgres(url, { max: 1, onnotice });
  await reads(sql);
  await otherModes();
  await writes(sql);
  await errors(sql);
  await notifications(sql);
  await cursors(sql);
  await copies(sql);
  await sql.end();
}

/** Asks often enough that the later answers come from memory, and always expects the same. */
async function steady(name, ask) {
  const first = text(await ask());
  for (let round = 0; round < 20; round++) {
    await sleep(10);
    assert.equal(text(await ask()), first, name);
  }
  console.log(name, first);
}

async function reads(sql) {
  await steady('prepared', async () => {
    const result = await sql`select title, genre, votes as prepared from film where id = ${1}`;
    return [[...result], result.command, result.count, result.columns.map(({ name, type }) => [name, type])];
  });
  await steady('no row', () => sql`select votes as prepared from film where id = ${100000}`);
  await steady('simple', () => sql`select title, votes as simple from film where id = 1`.simple());
  await steady('unsafe', () => sql.unsafe('select title, votes as unsafe from film where id = $1', [1]));
  await steady('unsafe, prepared', () =>
    sql.unsafe('select title, votes as unsafe_prepared from film where id = $1', [1], { prepare: true }));
  await steady('values', () => sql`select id, votes as listed from film where id < ${4} order by id`.values());
  await steady('raw', () => sql`select title, votes as raw from film where id = ${1}`.raw());
  await steady('kinds', () => sql`select * from kinds order by id`);
  await steady('array', () => sql`select id, votes as in_array from film where id = any(${[1, 2, 3]}) order by id`);
  await steady('pipeline', () =>
    Promise.all(Array.from({ length: 40 }, (_, i) => sql`select id, votes as pipelined from film where id = ${i + 1}`)));
  await steady('described', async () => {
    const { string, types, columns } = await sql`select title from film where id = ${1}`.describe();
    return { string, types, columns: columns.map(({ name, type }) => [name, type]) };
  });
}

async function otherModes() {
  const unprepared = postgres(url, { prepare: false, max: 3, fetch_types: false, types: { bigint: postgres.BigInt } });
  await steady('unprepared', () =>
    Promise.all(Array.from({ length: 9 }, (_, i) => unprepared`select big, ${i}::int as unprepared from kinds where id = 1`)));
  await unprepared.end();
  const camel = postgres(url, { max: 2, transform: postgres.camel, connection: { application_name: 'camel' } });
  await steady('camel', () => camel`select film_id, actor from role where id = ${7}`);
  await camel.end();
}

async function writes(sql) {
  const votes = async () => (await sql`select votes as own from film where id = ${3}`)[0].own;
  for (let n = 100; n < 130; n++) {
    // Sent together, as the connection is a pipeline.
    const [updated, seen] = await Promise.all([sql`update film set votes = ${n} where id = 3`.execute(), votes()]);
    assert.equal(updated.count, 1);
    assert.equal(seen, n);
    assert.equal(await votes(), n);
  }
  await assert.rejects(
    sql.begin(async (sql) => {
      await sql`update film set votes = 0 where id = 3`;
      const inside = await sql`select votes as own from film where id = ${3}`;
      assert.equal(inside[0].own, 0);
      await sql.savepoint((sql) => sql`select nothing from film`).catch(({ code }) => assert.equal(code, '42703'));
      assert.equal((await sql`select votes as own from film where id = ${3}`)[0].own, 0);
      throw new Error('roll back');
    }),
    /roll back/,
  );
  assert.equal(await votes(), 129);
  const [first] = await sql.begin('isolation level repeatable read', (sql) => [
    sql`update film set votes = 1 where id = 3 returning votes`,
    sql`select votes as own from film where id = ${3}`,
  ]);
  assert.deepEqual([first[0].votes, await votes()], [1, 1]);
  const roles = [{ film_id: 1, actor: 'one' }, { film_id: 2, actor: 'two' }];
  print('inserted', await sql`insert into role ${sql(roles)} returning *`);
  const doc = { a: [1, { b: null }] };
  const [kind] = await sql`insert into kinds (id, doc, at, bytes, words) values (3, ${sql.json(doc)},
    ${'2024-02-29 00:00:00'}, ${Buffer.from([0, 1, 255])}, ${['x', 'y z']}) returning *`;
  print('kind', kind);
}

async function errors(sql) {
  for (const query of [
    () => sql`select nothing from film`,
    () => sql`select 1 / ${0}::int`,
    () => sql.unsafe('selec'),
    () => sql`insert into film values (1, 'twice')`,
    () => sql`select ${'x'}::text::int`,
  ]) {
    const error = await query().then(() => assert.fail('no error'), (error) => error);
    const { severity, code, message, detail, position, constraint_name: constraint, routine } = error;
    print('error', { severity, code, message, detail, position, constraint, routine });
  }
  await sql`do $$ begin raise notice 'hello'; raise warning 'world'; end $$`;
  const long = sql`select pg_sleep(300)`.execute();
  await asleep();
  long.cancel();
  await assert.rejects(long, { code: '57014' });
  assert.equal((await sql`select 1 as one`)[0].one, 1);
}

/** Waits until a server process sleeps: the server ignores a cancel that comes before its query. */
async function asleep() {
  const other = postgres(url, { max: 1 });
  const sleepers = () =>
    other`select from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()`;
  while ((await sleepers()).length === 0) await sleep(20);
  await other.end();
}

async function cursors(sql) {
  const pages = [];
  for await (const page of sql`select id, votes as by_cursor from film where id < ${8} order by id`.cursor(3)) {
    pages.push([...page]);
  }
  assert.deepEqual(pages.map((page) => page.length), [3, 3, 1]);
  print('cursor', pages);
  let seen = 0;
  await sql`select generate_series(1, 100000)`.cursor(10, () => (++seen === 3 ? sql.CLOSE : undefined));
  assert.equal(seen, 3);
  const each = [];
  await sql`select id from film where id < 5 order by id`.forEach(({ id }) => each.push(id));
  assert.deepEqual(each, [1, 2, 3, 4]);
}

async function copies(sql) {
  const rows = Array.from({ length: 2000 }, (_, i) => `${(i % 200) + 1}\tcopied ${i}\n`);
  await pipeline(Readable.from(rows), await sql`copy role (film_id, actor) from stdin`.writable());
  const [{ count }] = await sql`select count(*) from role where actor like 'copied%'`;
  assert.equal(count, '2000');
  let copied = '';
  for await (const chunk of await sql`copy (select * from role order by id) to stdout`.readable()) copied += chunk;
  assert.equal(copied.split('\n').length, 2503);
  print('copied', copied.slice(0, 100));
}

async function notifications(sql) {
  const heard = new Promise((resolve) => {
    sql.listen('channel', resolve).then(() => sql.notify('channel', 'hello'));
  });
  print('notification', await heard);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
