//! Whether publishing a table pays: the cost of its changes, compared with what hits on it save.
//!
//! Each commit that changes a published table has a cost, whether results of the table are cached or not. The server decodes and sends the rows,
//! Freshet applies them, and commit waits take longer. If rows change before they are read again, admission (`freshet_cache::admission`) fills
//! little, and nothing pays for the cost. So each table has a balance. Each commit costs. Each hit of a statement that reads the table adds what the
//! database was spared.
//!
//! A table without balance leaves the publication: first the cache drops its entries and the fact that it is published, then the server removes it.
//! It returns after a cool-off, when a fill needs it. Its balance is then a small part of the cool-off. If that is used up as well, the next cool-off
//! is twice as long. Only time in which fills need the table counts. So a table that never pays is published for a small share of the time in which
//! it is used, and a table that starts to pay is noticed.
//!
//! The balance is bounded: it survives a burst of writes, and is used up some time after hits end.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use freshet_cache::admission::Hits;
use freshet_types::TableId;

/// The cost of a commit that changes the table, in nanoseconds of the database and of Freshet
/// (docs/experiments/2026-11-25-tables-that-are-not-followed.md).
const COMMIT_COSTS: i64 = 20_000;
/// The first balance: five thousand commits.
const CREDIT: i64 = 5_000 * COMMIT_COSTS;
/// The highest balance.
const CREDIT_MAX: i64 = 100 * CREDIT;
/// The first and the longest cool-off.
const PAUSE_MIN: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// The balance after a cool-off, as a part of the cool-off.
const TRIAL_PART: u32 = 500;

#[derive(Debug)]
struct Account {
    /// Number of commits so far.
    commits: u64,
    balance: i64,
    /// Length of the next cool-off, or of the current one.
    pause: Duration,
    /// The rest of the cool-off, if the table is in one.
    left: Option<Duration>,
}

/// The accounts of all tables that were published.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    tables: HashMap<TableId, Account>,
    /// Hits of each statement so far, by its digest.
    hits: HashMap<u64, Hits>,
}

/// The figures of a statement.
pub(super) struct Earner<T> {
    pub(super) digest: u64,
    pub(super) hits: Hits,
    /// What one hit saves, in nanoseconds.
    pub(super) saves: u64,
    /// The tables that it reads. They are looked up only if needed.
    pub(super) tables: T,
}

impl Accounts {
    /// Updates the balances after `time`, and returns the tables that no longer pay. `is_wanted` tells whether fills have needed a table meanwhile,
    /// `commits` how many commits changed it.
    pub(super) fn update(
        &mut self,
        elapsed: Duration,
        is_wanted: impl Fn(TableId) -> bool,
        commits: &[(TableId, u64)],
        earners: impl Iterator<Item = Earner<impl FnOnce() -> Vec<TableId>>>,
        is_published: impl Fn(TableId) -> bool,
    ) -> Vec<TableId> {
        for (table, account) in &mut self.tables {
            if let Some(left) = account.left.as_mut().filter(|_| is_wanted(*table)) {
                *left = left.saturating_sub(elapsed);
            }
        }
        let earned = self.earned(earners);
        let mut gone = Vec::new();
        for (table, commits) in commits.iter().filter(|(table, _)| is_published(*table)) {
            let fresh = Account { commits: *commits, balance: CREDIT, pause: PAUSE_MIN, left: None };
            let account = self.tables.entry(*table).or_insert(fresh);
            if account.left.take().is_some() {
                // The table was published again.
                account.commits = *commits;
                account.balance = nanos(account.pause / TRIAL_PART);
                account.pause = (account.pause * 2).min(PAUSE_MAX);
            }
            let new = i64::try_from(commits.saturating_sub(account.commits)).unwrap_or(i64::MAX);
            account.commits = *commits;
            let earned = earned.get(table).copied().unwrap_or_default();
            let sum = account.balance.saturating_add(earned).saturating_sub(new.saturating_mul(COMMIT_COSTS));
            account.balance = sum.min(CREDIT_MAX);
            if account.balance > 2 * CREDIT {
                account.pause = PAUSE_MIN;
            }
            if account.balance < 0 {
                account.left = Some(account.pause);
                gone.push(*table);
            }
        }
        gone
    }

    /// The tables in cool-off.
    pub(super) fn in_cool_off(&self) -> HashSet<TableId> {
        let out = |account: &Account| account.left.is_some_and(|left| !left.is_zero());
        self.tables.iter().filter(|(_, account)| out(account)).map(|(table, _)| *table).collect()
    }

    fn earned(
        &mut self,
        earners: impl Iterator<Item = Earner<impl FnOnce() -> Vec<TableId>>>,
    ) -> HashMap<TableId, i64> {
        let mut earned: HashMap<TableId, i64> = HashMap::new();
        let before = std::mem::take(&mut self.hits);
        for Earner { digest, hits, saves, tables } in earners {
            let new = hits.since(before.get(&digest).copied().unwrap_or_default());
            self.hits.insert(digest, hits);
            let saved = new.save(saves);
            for table in (saved != 0).then(tables).into_iter().flatten() {
                let sum = earned.entry(table).or_default();
                *sum = sum.saturating_add(saved);
            }
        }
        earned
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: TableId = TableId(1);

    struct Load {
        accounts: Accounts,
        commits: u64,
        hits: u64,
        /// Hits after own writes among them.
        hits_after_own_write: u64,
        after_own_write: bool,
        wanted: bool,
        published: bool,
    }

    impl Load {
        fn new() -> Self {
            Self {
                accounts: Accounts::default(),
                commits: 0,
                hits: 0,
                hits_after_own_write: 0,
                after_own_write: false,
                wanted: true,
                published: true,
            }
        }

        /// Runs this load for a number of seconds. Returns the second in which the table leaves the publication.
        fn run(&mut self, seconds: u64, commits: u64, hits: u64) -> Option<u64> {
            (0..seconds).find(|_| {
                if !self.published {
                    self.published = self.wanted && !self.accounts.in_cool_off().contains(&TABLE);
                }
                self.commits += if self.published { commits } else { 0 };
                self.hits += if self.published { hits } else { 0 };
                self.hits_after_own_write += if self.published && self.after_own_write { hits } else { 0 };
                let hits = Hits { all: self.hits, after_own_write: self.hits_after_own_write, after_pass: 0 };
                let earner = Earner { digest: 7, hits, saves: 50_000, tables: || vec![TABLE] };
                let (wanted, published) = (self.wanted, self.published);
                let all = [(TABLE, self.commits)];
                let second = Duration::from_secs(1);
                let gone = self.accounts.update(second, |_| wanted, &all, [earner].into_iter(), |_| published);
                self.published &= gone.is_empty();
                !gone.is_empty()
            })
        }
    }

    #[test]
    fn what_nobody_hits_leaves_and_comes_back_ever_more_seldom() {
        let mut load = Load::new();
        assert_eq!(load.run(10, 3_000, 20), Some(2));
        let pauses: Vec<u64> = (0..4).map(|_| load.run(1_000, 3_000, 20).unwrap()).collect();
        assert!(pauses.windows(2).all(|pair| pair[1] > pair[0] + 8), "{pauses:?}");
        assert!(pauses[0] >= 10 && pauses[3] >= 80, "{pauses:?}");
    }

    #[test]
    fn time_in_which_nobody_wants_it_is_no_pause() {
        let mut load = Load::new();
        assert!(load.run(10, 3_000, 0).is_some());
        load.wanted = false;
        assert_eq!(load.run(100, 3_000, 0), None);
        load.wanted = true;
        assert!(load.run(9, 3_000, 0).is_none() && !load.published);
        assert_eq!(load.run(2, 100, 3_000), None);
        assert!(load.published);
    }

    #[test]
    fn what_is_hit_stays_also_over_a_burst_of_writes() {
        let mut load = Load::new();
        assert_eq!(load.run(100, 3_000, 3_000), None);
        assert_eq!(load.run(10, 20_000, 0), None);
        // The table does not stay published.
        assert!(load.run(100, 20_000, 0).is_some());
    }

    #[test]
    fn hits_after_own_writes_that_cost_more_than_they_save_keep_no_table() {
        let mut load = Load { after_own_write: true, ..Load::new() };
        assert_eq!(load.run(100, 1_000, 3_000), Some(1));
    }

    #[test]
    fn few_changes_and_fewer_hits_may_stay_for_long() {
        let mut load = Load::new();
        assert_eq!(load.run(1_000, 4, 0), None);
    }

    #[test]
    fn the_next_cool_off_is_short_if_the_table_paid_again() {
        let mut load = Load::new();
        for _ in 0..5 {
            assert!(load.run(2_000, 10_000, 0).is_some());
        }
        assert_eq!(load.run(400, 1_000, 10_000), None);
        assert!(load.run(1_000, 100_000, 0).is_some());
        assert!(load.run(30, 100_000, 0).is_some_and(|seconds| seconds <= 13));
    }
}
