//! A client session: look-ups, fills with each reading at its own time, reads that bypass, fills given up.

use freshet_cache::{FillPermit, Floor, Installed, Lookup};
use freshet_model::{End, Epoch, Lsn, Nanos, Visible};

use crate::oracle::{Answered, Violation};
use crate::query::Query;
use crate::rng::Rng;
use crate::set::TxnSet;
use crate::world::{MS, World};

pub(crate) struct Session {
    rng: Rng,
    floor: Floor,
    /// All that it has seen.
    seen: TxnSet,
    /// The definition that it made itself last.
    defined: u64,
    stage: Stage,
    pub(crate) hit: bool,
}

enum Stage {
    Idle,
    Missed(Query),
    /// Between the readings of a fill, or of a read that bypasses (without permit).
    Proof(Query, Option<FillPermit<Answered>>),
    Read(Query, Option<FillPermit<Answered>>, Visible),
    End(Option<FillPermit<Answered>>, Visible, Answered, Option<Epoch>),
    Arrived(Option<FillPermit<Answered>>, Visible, Answered, Option<Epoch>, Lsn),
}

impl Session {
    pub(crate) fn new(rng: Rng) -> Self {
        Self { rng, floor: Floor::default(), seen: TxnSet::default(), defined: 0, stage: Stage::Idle, hit: false }
    }

    /// Does one thing; returns the time until the next.
    pub(crate) fn step(&mut self, world: &mut World) -> Result<Nanos, Violation> {
        let stage = std::mem::replace(&mut self.stage, Stage::Idle);
        self.stage = match stage {
            Stage::Idle if !world.quiet() && self.rng.below(400) == 0 => {
                world.db.change_definition(world.now);
                self.defined = world.db.definition;
                self.floor.catalog_since = world.now;
                Stage::Idle
            }
            Stage::Idle => {
                // Another client: it has seen nothing yet.
                if self.rng.percent(4) {
                    (self.floor, self.seen, self.defined) = (Floor::default(), TxnSet::default(), 0);
                }
                let query = world.pool[self.rng.below(world.pool.len() as u64) as usize].clone();
                self.look_up(world, query)?
            }
            other => self.advance(world, other)?,
        };
        Ok(match &self.stage {
            Stage::Idle => self.rng.between(0, 40) * MS,
            _ if self.rng.percent(3) => self.rng.between(0, 900) * MS,
            _ => self.rng.between(0, 30) * MS / 10,
        })
    }

    /// Asks and is answered before anything else happens.
    pub(crate) fn ask_at_once(&mut self, world: &mut World, query: &Query) -> Result<(), Violation> {
        self.stage = self.look_up(world, query.clone())?;
        while !matches!(self.stage, Stage::Idle) {
            let stage = std::mem::replace(&mut self.stage, Stage::Idle);
            self.stage = self.advance(world, stage)?;
        }
        Ok(())
    }

    fn look_up(&mut self, world: &mut World, query: Query) -> Result<Stage, Violation> {
        self.hit = false;
        match world.cache.lookup(&query.key(), &self.floor, world.now) {
            Lookup::Hit(entry) => {
                self.hit = true;
                world.stats.hits += 1;
                world.oracle.check_hit(world.now, &world.db, &query, &entry.payload, &self.seen)?;
                if entry.payload.definition < self.defined {
                    let text = format!("OWN DDL: {query:?} is answered under definition {}", entry.payload.definition);
                    return Err(Violation::new(world.now, text));
                }
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

    fn advance(&mut self, world: &mut World, stage: Stage) -> Result<Stage, Violation> {
        let gives_up = !world.quiet() && self.rng.percent(2);
        Ok(match stage {
            Stage::Idle => Stage::Idle,
            Stage::Missed(query) => {
                let version = world.catalog.map(|(version, _)| version);
                let begin = |version| world.cache.begin_fill(&query.key(), query.tags(), version, world.now).ok();
                let permit = version.and_then(begin);
                Stage::Proof(query, permit)
            }
            Stage::Proof(query, permit) => Stage::Read(query, permit.filter(|_| !gives_up), world.db.snapshot()),
            Stage::Read(query, permit, proof) => {
                if query.tables().iter().any(|t| world.db.locked_exclusively(*t)) {
                    return Ok(Stage::Read(query, permit, proof));
                }
                let epoch = world.cache.epoch();
                let answered = Answered {
                    answer: query.answer(&world.db.visible),
                    definition: world.db.definition,
                    saw: world.db.visible_set.clone(),
                    query,
                };
                Stage::End(permit, proof, answered, epoch)
            }
            Stage::End(permit, proof, answered, epoch) => {
                Stage::Arrived(permit, proof, answered, epoch, world.db.insert)
            }
            Stage::Arrived(permit, proof, answered, epoch, end) => {
                self.floor.end = epoch.map(|epoch| End { epoch, lsn: end });
                self.floor.since = world.now;
                self.seen.add(&answered.saw);
                match permit {
                    Some(permit) if !gives_up => match permit.commit(answered, &proof, end) {
                        Installed::Stored => {
                            world.stats.stored += 1;
                            world.oracle.check_entries(world.now, &world.db, &world.cache)?;
                        }
                        Installed::Stale => world.stats.stale_fills += 1,
                        Installed::TooLarge => {}
                    },
                    Some(_) => world.stats.abandoned += 1,
                    None => {}
                }
                Stage::Idle
            }
        })
    }
}
