// What an application does with Prisma: queries of all kinds, relations, nested writes, transactions, raw SQL.

const assert = require('node:assert/strict');
const { setTimeout: sleep } = require('node:timers/promises');

const url = process.argv[2];
const { Prisma, PrismaClient, pools, prepared, failing } = url.startsWith('postgres') ? postgresql() : mysql();

/**
 * What differs between the families: the client that was generated; adapters with a pool of two connections; one with a
 * single connection that prepares its statements once; an expression that fails.
 */
function postgresql() {
  const { PrismaPg } = require('@prisma/adapter-pg');
  const names = new Map();
  const statementNameGenerator = ({ sql }) => names.get(sql) ?? names.set(sql, `s${names.size}`).get(sql);
  return {
    ...require('generated'),
    pools: [() => new PrismaPg({ connectionString: url, max: 2 })],
    prepared: () => new PrismaPg({ connectionString: url, max: 1 }, { statementNameGenerator }),
    failing: (db) => db.$queryRaw`select 1 / ${0}::int`,
  };
}

/** In the binary protocol, where each statement is prepared and closed, and in the text protocol. */
function mysql() {
  const { PrismaMariaDb } = require('@prisma/adapter-mariadb');
  return {
    ...require('generated-mysql'),
    pools: [{}, { useTextProtocol: true }].map((options) => () => new PrismaMariaDb(`${url}?connectionLimit=2`, options)),
    prepared: () => new PrismaMariaDb(`${url}?connectionLimit=1&prepareCacheLength=256`),
    failing: (db) => db.$queryRaw`select exp(${1000})`,
  };
}

function text(value) {
  return JSON.stringify(value, (_, v) => (typeof v === 'bigint' ? `${v}` : v));
}

function print(what, value) {
  console.log(what, text(value));
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

async function main() {
  for (const pool of pools) {
    const db = new PrismaClient({ adapter: pool() });
    await reads(db);
    await db.$disconnect();
  }
  // One connection: what another one wrote is seen within a moment only.
  const db = new PrismaClient({ adapter: prepared() });
  await steady('prepared', () => db.film.findFirst({ where: { title: 'film 8' }, select: { votes: true } }));
  await writes(db);
  await transactions(db);
  await errors(db);
  await db.$disconnect();
}

async function reads(db) {
  await steady('unique', () => db.film.findUnique({ where: { id: 1 } }));
  await steady('nothing', () => db.film.findUnique({ where: { id: 100000 } }));
  await steady('first', () => db.film.findFirst({ where: { title: 'film 7' } }));
  await steady('many', () => db.film.findMany({ where: { genre: 'drama', votes: { lt: 20 } }, orderBy: { id: 'asc' } }));
  await steady('page', () => db.film.findMany({ skip: 10, take: 3, orderBy: { id: 'asc' }, select: { title: true } }));
  await steady('in', () => db.film.findMany({ where: { id: { in: [1, 2, 3] } }, orderBy: { id: 'asc' } }));
  await steady('together', () => Promise.all([4, 5, 6].map((id) => db.film.findUnique({ where: { id } }))));
  await steady('relation', () => db.film.findUnique({ where: { id: 2 }, include: { roles: { orderBy: { id: 'asc' } } } }));
  await steady('back', () => db.role.findFirst({ where: { id: 10 }, include: { film: true } }));
  await steady('some', () => db.film.count({ where: { roles: { some: { actor: 'actor 1' } } } }));
  await steady('aggregate', () => db.film.aggregate({ _sum: { votes: true }, _max: { votes: true }, _count: true }));
  await steady('groups', () => db.film.groupBy({ by: ['genre'], _count: true, orderBy: { genre: 'asc' } }));
  await steady('kinds', () => db.kinds.findMany({ orderBy: { id: 'asc' } }));
  await steady('raw', () => db.$queryRaw`select id, votes as raw from film where id = ${3}`);
  await steady('raw, no parameters', () => db.$queryRawUnsafe('select id, votes as unsafe from film where id = 3'));
}

async function writes(db) {
  for (let n = 100; n < 120; n++) {
    assert.equal((await db.film.update({ where: { id: 3 }, data: { votes: n } })).votes, n);
    for (let again = 0; again < 3; again++) assert.equal((await db.film.findUnique({ where: { id: 3 } })).votes, n);
  }
  const roles = { create: [{ actor: 'one' }, { actor: 'two' }] };
  const film = { id: 1000, title: 'new', roles };
  print('nested', await db.film.create({ data: film, include: { roles: true } }));
  print('upsert', await db.film.upsert({ where: { id: 1000 }, update: { votes: { increment: 5 } }, create: film }));
  const many = Array.from({ length: 300 }, (_, i) => ({ filmId: (i % 200) + 1, actor: `many ${i}` }));
  assert.equal((await db.role.createMany({ data: many })).count, 300);
  assert.equal(await db.role.count({ where: { actor: { startsWith: 'many' } } }), 300);
  assert.equal((await db.role.deleteMany({ where: { actor: { startsWith: 'many' } } })).count, 300);
  const kind = { id: 3, big: 2n ** 60n, exact: new Prisma.Decimal('1.5'), bytes: Buffer.from([0, 255]), doc: { a: [null] } };
  print('kind', await db.kinds.create({ data: { ...kind, at: new Date(0), day: new Date(0), letters: 'x' } }));
  assert.equal(await db.$executeRaw`update film set votes = 1 where id in (${1}, ${2})`, 2);
}

async function transactions(db) {
  const [before, after] = await db.$transaction([
    db.film.findUnique({ where: { id: 9 } }),
    db.film.update({ where: { id: 9 }, data: { votes: { increment: 1 } } }),
  ]);
  assert.equal(before.votes + 1, after.votes);
  const failing = db.$transaction(
    async (db) => {
      await db.film.update({ where: { id: 9 }, data: { votes: 0 } });
      assert.equal((await db.film.findUnique({ where: { id: 9 } })).votes, 0);
      throw new Error('roll back');
    },
    { isolationLevel: 'Serializable' },
  );
  await assert.rejects(failing, /roll back/);
  assert.equal((await db.film.findUnique({ where: { id: 9 } })).votes, after.votes);
}

async function errors(db) {
  for (const attempt of [
    () => db.film.create({ data: { id: 1, title: 'twice' } }),
    () => db.role.create({ data: { filmId: 100000, actor: 'x' } }),
    () => db.film.update({ where: { id: 100000 }, data: { votes: 0 } }),
    () => db.$queryRaw`select nothing from film`,
    () => failing(db),
  ]) {
    const error = await attempt().then(() => assert.fail('no error'), (error) => error);
    print('error', [error.code, error.meta?.driverAdapterError?.cause ?? error.meta]);
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
