//! A client session: look-ups, fills with each reading at its own time, reads that bypass, abandoned fills; and transactions, whose fills have no
//! proof and learn the log end only once the transaction has ended.

use freshet_cache::{FillPermit, FillRequest, Installed, Lookup, Proven, SnapshotBounds, Watermark};
use freshet_types::{Dialect, End, Epoch, Lsn, Nanos, Visible};

use crate::database::{State, table_id};
use crate::oracle::{Answered, Violation};
use crate::query::{Answer, Query};
use crate::rng::Rng;
use crate::set::TxnSet;
use crate::world::{MS, World};

type Permit = Option<FillPermit<Answered>>;
/// A result that a transaction has read and that may be cached once it has ended; its fill has no proof.
type Kept = (FillPermit<Answered>, Option<Visible>, Answered);

pub(crate) struct Session {
    rng: Rng,
    watermark: Watermark,
    /// Everything that it has seen.
    seen: TxnSet,
    /// The last definition that it made itself.
    defined: u64,
    stage: Stage,
    block: Option<Block>,
    pub(crate) hit: bool,
}

/// An open transaction.
struct Block {
    repeatable: bool,
    /// What was proven visible when it began.
    lo: Option<Proven>,
    /// The snapshot of a REPEATABLE READ transaction, from its first read on.
    snapshot: Option<(State, TxnSet)>,
    reads_left: u64,
    fills: Vec<Kept>,
}

enum Stage {
    Idle,
    Missed(Query),
    /// Between the readings of a fill, or of a read that bypasses (without a permit).
    Proof(Query, Permit),
    Read(Query, Permit, Option<Visible>),
    End(Permit, Option<Visible>, Answered, Option<Epoch>),
    Arrived(Permit, Option<Visible>, Answered, Option<Epoch>),
    /// The transaction has ended; the log end is read, and arrives. The result has arrived; the keys of rows that lead to others are read, if that
    /// was not done before.
    Keep(FillPermit<Answered>, Option<Visible>, Answered),
    /// The log end is read again after these keys.
    KeepBehind(FillPermit<Answered>, Option<Visible>, Answered),
    /// The stream passes it.
    KeepOnce(FillPermit<Answered>, Option<Visible>, Answered),
    Ended(Vec<Kept>),
    EndArrived(Vec<Kept>, Lsn),
}

impl Session {
    pub(crate) fn new(rng: Rng) -> Self {
        let (watermark, seen) = (Watermark::default(), TxnSet::default());
        Self { rng, watermark, seen, defined: 0, stage: Stage::Idle, block: None, hit: false }
    }

    /// The process died: another client connects.
    pub(crate) fn restart(&mut self) {
        (self.watermark, self.seen, self.defined) = (Watermark::default(), TxnSet::default(), 0);
        (self.stage, self.block) = (Stage::Idle, None);
    }

    /// Performs one action; returns the time until the next.
    pub(crate) fn step(&mut self, world: &mut World) -> Result<Nanos, Violation> {
        let stage = std::mem::replace(&mut self.stage, Stage::Idle);
        self.stage = match stage {
            Stage::Idle if self.block.as_ref().is_some_and(|block| block.reads_left == 0) => self.end_block(),
            Stage::Idle => {
                if self.block.is_none() {
                    self.between_transactions(world);
                }
                let query = world.pool[self.rng.below(world.pool.len() as u64) as usize].clone();
                self.look_up(world, query)?
            }
            other => self.advance(world, other)?,
        };
        Ok(match &self.stage {
            Stage::Idle if world.quiet() => self.rng.between(0, 400) * MS,
            Stage::Idle if self.block.is_some() => self.rng.between(0, 60) * MS,
            Stage::Idle => self.rng.between(0, 40) * MS,
            _ if self.rng.percent(3) => self.rng.between(0, 900) * MS,
            _ => self.rng.between(0, 30) * MS / 10,
        })
    }

    /// Sometimes redefines something, is replaced by another client, or begins a transaction.
    fn between_transactions(&mut self, world: &mut World) {
        if world.quiet() {
            return;
        }
        if self.rng.below(400 * world.steadiness) == 0 {
            world.db.change_definition(world.now);
            self.defined = world.db.definition;
            self.watermark.catalog_since = world.now;
        } else if self.rng.percent(4) {
            self.restart();
        }
        if self.rng.percent(15) {
            let repeatable = self.rng.percent(60);
            let lo = world.cache.proven();
            let reads_left = self.rng.between(1, 8);
            self.block = Some(Block { repeatable, lo, snapshot: None, reads_left, fills: Vec::new() });
        }
    }

    fn end_block(&mut self) -> Stage {
        self.watermark.snapshot = None;
        let fills = self.block.take().map(|block| block.fills).unwrap_or_default();
        if fills.is_empty() { Stage::Idle } else { Stage::Ended(fills) }
    }

    /// Sends a query, which is answered before anything else happens.
    pub(crate) fn ask_at_once(&mut self, world: &mut World, query: &Query) -> Result<(), Violation> {
        self.stage = self.look_up(world, query.clone())?;
        while !matches!(self.stage, Stage::Idle) {
            let stage = std::mem::replace(&mut self.stage, Stage::Idle);
            self.stage = self.advance(world, stage)?;
            // The stream does not move meanwhile.
            self.stage = match std::mem::replace(&mut self.stage, Stage::Idle) {
                Stage::KeepOnce(permit, _, answered) if !permit.may_commit(answered.read_end) => Stage::Idle,
                stage => stage,
            };
        }
        Ok(())
    }

    fn look_up(&mut self, world: &mut World, query: Query) -> Result<Stage, Violation> {
        self.hit = false;
        if let Some(block) = &mut self.block {
            block.reads_left = block.reads_left.saturating_sub(1);
            if block.repeatable && block.snapshot.is_none() {
                return Ok(Stage::Missed(query)); // the read that takes the snapshot
            }
            if block.repeatable && self.watermark.snapshot.is_none() {
                return Ok(Stage::Proof(query, None));
            }
        }
        match world.cache.lookup(&query.key(), &self.watermark, world.now) {
            Lookup::Hit(entry) => {
                self.hit = true;
                self.check_hit(world, &entry.payload)?;
                self.seen.add(&entry.payload.saw);
                Ok(Stage::Idle)
            }
            Lookup::Miss => {
                world.stats.misses += 1;
                Ok(Stage::Missed(query))
            }
            Lookup::Bypass(_) => {
                world.stats.bypasses += 1;
                Ok(Stage::Proof(query, None))
            }
        }
    }

    fn check_hit(&self, world: &mut World, held: &Answered) -> Result<(), Violation> {
        let snapshot = self.block.as_ref().and_then(|block| block.snapshot.as_ref());
        if let Some((state, _)) = snapshot {
            world.stats.snapshot_hits += 1;
            let expected = held.query.answer(state);
            if held.answer != expected {
                let text = format!("SNAPSHOT: {:?}\n  hit {:?}\n  is  {expected:?}", held.query, held.answer);
                return Err(Violation::new(world.now, text));
            }
        } else {
            world.stats.hits += 1;
            world.oracle.check_hit(world.now, &world.db, held, (&self.seen, &world.acknowledged))?;
        }
        if held.definition < self.defined {
            let text = format!("OWN DDL: {:?} is answered under definition {}", held.query, held.definition);
            return Err(Violation::new(world.now, text));
        }
        Ok(())
    }

    fn advance(&mut self, world: &mut World, stage: Stage) -> Result<Stage, Violation> {
        let gives_up = !world.quiet() && self.rng.percent(2);
        Ok(match stage {
            Stage::Idle => Stage::Idle,
            Stage::Missed(query) => {
                let begin = |(version, known): (_, crate::catalogue::Known)| {
                    let (key, tags, now) = (query.key(), query.tags(&known.views), world.now);
                    world.cache.missed(&key);
                    let snapshot = self
                        .watermark
                        .snapshot
                        .map(|snapshot| snapshot.lo)
                        .filter(|_| !world.rules.keeps_old_snapshots);
                    world
                        .cache
                        .begin_fill(FillRequest { key: &key, tags, catalog: version, now, snapshot, join_until: 0 })
                        .ok()
                };
                let permit = world.catalog.and_then(begin);
                let provable = |permit: &FillPermit<Answered>| self.block.is_none() || !permit.needs_proof();
                Stage::Proof(query, permit.filter(provable))
            }
            Stage::Proof(query, permit) => {
                // Sessions of MySQL and MariaDB do not read it: they have the prober's last proof, and a service connection reads the log end after
                // them.
                let own = world.db.dialect == Dialect::Postgres;
                let proof = if own { Some(world.db.proof()) } else { world.proof.clone() };
                let proof = proof.filter(|_| self.block.is_none() || world.rules.proves_in_blocks);
                let mut permit = permit.filter(|_| !gives_up);
                if self.rng.percent(30) {
                    permit = permit.and_then(|permit| set_deferred(world, permit, &query, None).ok());
                }
                Stage::Read(query, permit, proof)
            }
            Stage::Read(query, permit, proof) => {
                let relations = query.relations(&world.db.visible.views);
                if relations.iter().any(|relation| world.db.locked_exclusively(*relation)) {
                    return Ok(Stage::Read(query, permit, proof));
                }
                Stage::End(permit, proof, self.read(world, query), world.cache.epoch())
            }
            Stage::End(permit, proof, mut answered, epoch) => {
                answered.read_end = world.db.insert;
                Stage::Arrived(permit, proof, answered, epoch)
            }
            Stage::Arrived(permit, proof, answered, epoch) => {
                self.arrive(world, permit.filter(|_| !gives_up), (proof, answered), epoch)
            }
            Stage::Keep(permit, proof, answered) => {
                let tells = answered.query.told(&answered.answer).is_some();
                let known = !permit.wants_deferred() || permit.knows_deferred() || tells;
                match set_deferred(world, permit, &answered.query, Some(&answered.answer)) {
                    Ok(permit) if known => {
                        keep(world, permit, answered, proof.as_ref())?;
                        Stage::Idle
                    }
                    Ok(permit) => Stage::KeepBehind(permit, proof, answered),
                    Err(permit) => Stage::Keep(permit, proof, answered),
                }
            }
            Stage::KeepBehind(permit, proof, mut answered) => {
                answered.read_end = world.db.insert;
                Stage::KeepOnce(permit, proof, answered)
            }
            Stage::KeepOnce(permit, proof, answered) if permit.may_commit(answered.read_end) => {
                keep(world, permit, answered, proof.as_ref())?;
                Stage::Idle
            }
            Stage::KeepOnce(..) if gives_up => Stage::Idle,
            Stage::KeepOnce(permit, proof, answered) => Stage::KeepOnce(permit, proof, answered),
            Stage::Ended(fills) => {
                // It does not wait for a locked table.
                let told = |(permit, proof, answered): Kept| {
                    let told = set_deferred(world, permit, &answered.query, Some(&answered.answer));
                    told.ok().map(|permit| (permit, proof, answered))
                };
                let fills = fills.into_iter().filter_map(told).collect();
                Stage::EndArrived(fills, world.db.insert)
            }
            Stage::EndArrived(fills, end) => {
                let mut waiting = Vec::new();
                for (permit, proof, mut answered) in fills {
                    answered.read_end = end;
                    if permit.may_commit(end) {
                        keep(world, permit, answered, proof.as_ref())?;
                    } else if !gives_up {
                        waiting.push((permit, proof, answered));
                    }
                }
                if waiting.is_empty() { Stage::Idle } else { Stage::EndArrived(waiting, end) }
            }
        })
    }

    fn read(&mut self, world: &World, query: Query) -> Answered {
        let visible = || (world.db.visible.clone(), world.db.visible_set.clone());
        let (answer, saw) = match &mut self.block {
            Some(block) if block.repeatable => {
                let (state, saw) = block.snapshot.get_or_insert_with(visible);
                (query.answer(state), saw.clone())
            }
            _ => (query.answer(&world.db.visible), world.db.visible_set.clone()),
        };
        Answered { answer, definition: world.db.definition, saw, query, read_end: Lsn(0) }
    }

    fn arrive(
        &mut self,
        world: &mut World,
        permit: Permit,
        (proof, answered): (Option<Visible>, Answered),
        epoch: Option<Epoch>,
    ) -> Stage {
        self.watermark.since = world.now;
        self.seen.add(&answered.saw);
        if let Some(block) = &mut self.block {
            self.watermark.end = None;
            if block.repeatable && self.watermark.snapshot.is_none() {
                self.watermark.snapshot = block.lo.map(|lo| SnapshotBounds { lo, since: world.now });
            }
            block.fills.extend(permit.map(|permit| (permit, proof, answered)));
            return Stage::Idle;
        }
        let own = world.db.dialect == Dialect::Postgres;
        self.watermark.end = epoch.filter(|_| own).map(|epoch| End { epoch, lsn: answered.read_end });
        permit.map_or(Stage::Idle, |permit| Stage::Keep(permit, proof, answered))
    }
}

/// Sets the query's deferred tags, from the answer or from a key query, unless that was done. Returns the permit if a table is locked.
fn set_deferred(
    world: &World,
    mut permit: FillPermit<Answered>,
    query: &Query,
    answer: Option<&Answer>,
) -> Result<FillPermit<Answered>, FillPermit<Answered>> {
    if query.leader().is_some_and(|table| world.db.locked_exclusively(table)) {
        return Err(permit);
    }
    if permit.wants_deferred() && !permit.knows_deferred() {
        match (query, answer) {
            (Query::Listed(..) | Query::Counted(..), None) => {}
            (_, answer) => {
                let told = answer.and_then(|answer| query.told(answer));
                let led_by = query.leader().map(|table| [table_id(table)].into());
                match query.until_known() {
                    Some(until_known) => {
                        let named = query.named().into_iter().collect();
                        permit.set_members(query.late(&world.db.visible), until_known, Some([].into()), named);
                    }
                    None => permit.set_deferred(told.unwrap_or_else(|| query.late(&world.db.visible)), led_by),
                }
            }
        }
    }
    Ok(permit)
}

/// Installs the result if it may be; the entry that it replaces was as good, if the stream has passed what both saw.
fn keep(
    world: &mut World,
    permit: FillPermit<Answered>,
    answered: Answered,
    proof: Option<&Visible>,
) -> Result<(), Violation> {
    let (answer, end) = (answered.answer.clone(), answered.read_end);
    match permit.commit(answered, proof, end) {
        Installed::Stored { replaced, .. } => {
            let applied = world.cache.levels(world.now).applied.map(|applied| applied.lsn);
            let passed = |end: Lsn| applied >= Some(end);
            let as_good = |old: &Answered| !passed(end.max(old.read_end)) || old.answer == answer;
            if let Some(old) = replaced.filter(|old| !as_good(&old.payload)) {
                return Err(Violation::new(world.now, format!("REPLACED: {:?} by {answer:?}", old.payload)));
            }
            world.stats.stored += 1;
            world.stats.stored_without_proof += u64::from(proof.is_none());
            world.oracle.check_entries(world.now, &world.db, &world.cache)
        }
        Installed::Stale => {
            world.stats.stale_fills += 1;
            Ok(())
        }
        Installed::TooLarge | Installed::Rejected => Ok(()),
    }
}
