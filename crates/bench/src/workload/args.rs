//! The arguments that choose a workload and its size.
//!
//! All workloads share one list of options, since they share one subcommand. An option that the chosen workload does not have is an error. Were it
//! ignored, a run with `--distribution zipf:1` could measure uniform keys.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use super::OnOff;
use super::Workload;
use super::custom::Custom;
use super::distribution::Distribution;
use super::game_rows::{GameRows, Players};
use super::movies::{Catalogue, Size};
use super::oltp::{Oltp, Shape};
use super::point_select::PointSelect;
use super::replay::{Replay, ReplayArgs};
use super::sbtest::Tables;
use super::taxi::{TaxiTrips, Trips};
use super::title_aggregates::TitleAggregates;
use super::title5::Title5;
use super::ycsb::{CoreWorkload, Mix, Records, WriteKind, Ycsb};

/// The names of the workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum WorkloadName {
    /// A movie page: five SELECTs by a title, drawn uniformly from 969
    #[value(name = "title-5")]
    Title5,
    /// Six aggregations over the tables of title-5
    TitleAggregates,
    /// sysbench's point selects, one or several per transaction
    PointSelect,
    /// sysbench's OLTP read-only transaction: 10 point selects and 4 ranges of 100 rows
    OltpReadOnly,
    /// Like oltp-read-only, with an index update, a non-index update, and a delete with its insert
    OltpReadWrite,
    /// Reads a row by key, updates it, and reads a row of another table by email address; uses the target's look-aside cache if it has one
    GameRows,
    /// YCSB's core workloads (--workload), or reads and writes in a given ratio (--read-share)
    Ycsb,
    /// Taxi trips that begin and end, and pages about drivers and zones (--read-share)
    TaxiTrips,
    /// Statements and parameters from a file (--file; see docs/guide/bench-custom.md)
    Custom,
    /// The statements of a server's query log, with its sessions and its timing (--query-log)
    Replay,
}

/// A workload and its settings.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkloadArgs {
    /// The workload
    #[arg(value_enum)]
    pub workload: WorkloadName,
    /// title-5, title-aggregates: distinct movie titles; the load requests the first 969 [default: 8000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000), help_heading = "Workload")]
    pub movies: Option<u32>,
    /// title-5, title-aggregates: load the movies from IMDb's files in this directory instead of generating them: title.basics.tsv,
    /// title.ratings.tsv, title.principals.tsv and name.basics.tsv, each also with .gz. `run` reads no file and requests the movies with the most
    /// votes
    #[arg(long, value_name = "DIR", conflicts_with_all = ["movies", "data_seed"], help_heading = "Workload")]
    pub imdb: Option<PathBuf>,
    /// point-select, oltp-*: tables [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "Workload")]
    pub tables: Option<u32>,
    /// point-select, oltp-*, game-rows, taxi-trips: rows in each table (taxi-trips: number of trips) [default: 100000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000), help_heading = "Workload")]
    pub rows: Option<u32>,
    /// point-select: statements per transaction [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Workload")]
    pub per_transaction: Option<u32>,
    /// All but custom: BEGIN and COMMIT around each transaction. Default: on for oltp-* and for point-select with more than one statement per
    /// transaction, otherwise off
    #[arg(long, value_enum, help_heading = "Workload")]
    pub transactions: Option<OnOff>,
    /// point-select, oltp-*, game-rows, ycsb, taxi-trips: distribution of the requested rows: `uniform`, `zipf:S`, `scrambled:S` (zipf with the hot
    /// rows spread over the table), `zipfian` (YCSB's: the same over many more rows), `latest[:S]` (zipf from the newest end),
    /// `hotspot[:ROWS:ACCESSES]` (shares from 0 to 1) or `special` (sysbench's) [default: uniform; ycsb and taxi-trips: zipfian, but latest in d]
    #[arg(long, help_heading = "Workload")]
    pub distribution: Option<Distribution>,
    /// point-select: distribution of the rows that the background writer updates (--writes) [default: as --distribution]
    #[arg(long, help_heading = "Workload")]
    pub writes_distribution: Option<Distribution>,
    /// All but custom: seed of the generated rows [default: 1]
    #[arg(long, help_heading = "Workload")]
    pub data_seed: Option<u64>,
    /// ycsb: the core workload [default: a]
    #[arg(long = "workload", value_enum, conflicts_with = "read_share", help_heading = "Workload")]
    pub core: Option<CoreWorkload>,
    /// ycsb (instead of a core workload) and taxi-trips: percentage of transactions that read; each of several values becomes a cell [default: 50]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=100), help_heading = "Workload")]
    pub read_share: Vec<u32>,
    /// ycsb, with --read-share: the kind of the other transactions [default: update]
    #[arg(long, value_enum, requires = "read_share", help_heading = "Workload")]
    pub write_kind: Option<WriteKind>,
    /// ycsb: rows [default: 100000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000), help_heading = "Workload")]
    pub records: Option<u32>,
    /// ycsb: fields of a row [default: 10]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "Workload")]
    pub fields: Option<u32>,
    /// ycsb: bytes of a field [default: 100]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_535), help_heading = "Workload")]
    pub field_length: Option<u32>,
    /// custom: the file
    #[arg(long, help_heading = "Workload")]
    pub file: Option<PathBuf>,
    /// replay: the query log
    #[command(flatten)]
    pub replay: ReplayArgs,
}

const MOVIES: usize = 8000;
const ROWS: u32 = 100_000;
const DATA_SEED: u64 = 1;
/// YCSB's defaults.
const FIELDS: u32 = 10;
const FIELD_LENGTH: u32 = 100;

impl WorkloadArgs {
    /// The workload for a load of its data. An option of another workload is an error.
    pub fn build(&self) -> Result<Arc<dyn Workload>> {
        self.build_with(self.read_share.first().copied())
    }

    /// The workloads for a run: one for each value of the options that take several.
    pub fn build_all(&self) -> Result<Vec<Arc<dyn Workload>>> {
        match self.read_share.as_slice() {
            [] => Ok(vec![self.build_with(None)?]),
            shares => shares.iter().map(|share| self.build_with(Some(*share))).collect(),
        }
    }

    fn build_with(&self, read_share: Option<u32>) -> Result<Arc<dyn Workload>> {
        self.refuse_options_of_others()?;
        Ok(match self.workload {
            WorkloadName::TaxiTrips => {
                let trips = Trips::new(self.rows.unwrap_or(ROWS), self.data_seed.unwrap_or(DATA_SEED))?;
                let distribution = self.distribution.unwrap_or(Distribution::Zipfian);
                Arc::new(TaxiTrips::new(trips, read_share.unwrap_or(50), distribution, self.transactions(false))?)
            }
            WorkloadName::Ycsb => Arc::new(self.ycsb(read_share)?),
            WorkloadName::PointSelect => {
                let many = self.per_transaction.unwrap_or(1);
                Arc::new(PointSelect::new(self.sbtest()?, many, self.transactions(many > 1)))
            }
            WorkloadName::Title5 => Arc::new(Title5::new(self.movies(), self.transactions(false))),
            WorkloadName::TitleAggregates => Arc::new(TitleAggregates::new(self.movies(), self.transactions(false))),
            WorkloadName::OltpReadOnly | WorkloadName::OltpReadWrite => {
                let writes = self.workload == WorkloadName::OltpReadWrite;
                Arc::new(Oltp::new(self.sbtest()?, Shape { writes, transactions: self.transactions(true) }))
            }
            WorkloadName::GameRows => {
                let rows = self.rows.unwrap_or(ROWS) as usize;
                let distribution = self.distribution.unwrap_or(Distribution::Uniform);
                let players = Players::new(rows, distribution, self.data_seed.unwrap_or(DATA_SEED))?;
                Arc::new(GameRows::new(players, self.transactions(false)))
            }
            WorkloadName::Replay => Arc::new(Replay::read(&self.replay)?),
            WorkloadName::Custom => Arc::new(Custom::read(self.file.as_deref().context("custom needs --file")?)?),
        })
    }

    fn refuse_options_of_others(&self) -> Result<()> {
        use WorkloadName::{
            Custom, GameRows, OltpReadOnly, OltpReadWrite, PointSelect, TaxiTrips, Title5, TitleAggregates, Ycsb,
        };
        let sysbench = [PointSelect, OltpReadOnly, OltpReadWrite];
        let rows = [PointSelect, OltpReadOnly, OltpReadWrite, GameRows, TaxiTrips];
        let keyed = [PointSelect, OltpReadOnly, OltpReadWrite, GameRows, TaxiTrips, Ycsb];
        let made = [PointSelect, OltpReadOnly, OltpReadWrite, GameRows, Title5, TitleAggregates, TaxiTrips, Ycsb];
        let options: [(&str, bool, &[WorkloadName]); 17] = [
            ("--movies", self.movies.is_some(), &[Title5, TitleAggregates]),
            ("--imdb", self.imdb.is_some(), &[Title5, TitleAggregates]),
            ("--tables", self.tables.is_some(), &sysbench),
            ("--rows", self.rows.is_some(), &rows),
            ("--per-transaction", self.per_transaction.is_some(), &[PointSelect]),
            ("--transactions", self.transactions.is_some(), &made),
            ("--distribution", self.distribution.is_some(), &keyed),
            ("--writes-distribution", self.writes_distribution.is_some(), &[PointSelect]),
            ("--data-seed", self.data_seed.is_some(), &made),
            ("--workload", self.core.is_some(), &[Ycsb]),
            ("--read-share", !self.read_share.is_empty(), &[Ycsb, TaxiTrips]),
            ("--write-kind", self.write_kind.is_some(), &[Ycsb]),
            ("--records", self.records.is_some(), &[Ycsb]),
            ("--fields", self.fields.is_some(), &[Ycsb]),
            ("--field-length", self.field_length.is_some(), &[Ycsb]),
            ("--file", self.file.is_some(), &[Custom]),
            ("--query-log", self.replay.query_log.is_some(), &[WorkloadName::Replay]),
        ];
        for (option, given, users) in options {
            ensure!(!given || users.contains(&self.workload), "{option} is not an option of {}", self.workload.text());
        }
        Ok(())
    }

    fn movies(&self) -> Catalogue {
        if let Some(directory) = &self.imdb {
            return Catalogue::imdb(directory.clone());
        }
        let movies = self.movies.map_or(MOVIES, |movies| movies as usize);
        Catalogue::made(Size { movies, seed: self.data_seed.unwrap_or(DATA_SEED) })
    }

    fn sbtest(&self) -> Result<Arc<Tables>> {
        let (tables, rows) = (self.tables.unwrap_or(1), self.rows.unwrap_or(ROWS));
        let distribution = self.distribution.unwrap_or(Distribution::Uniform);
        let seed = self.data_seed.unwrap_or(DATA_SEED);
        let tables = Tables::new((tables, rows), distribution, seed).context("--distribution")?;
        Ok(Arc::new(match self.writes_distribution {
            Some(written) => tables.written_by(written).context("--writes-distribution")?,
            None => tables,
        }))
    }

    fn ycsb(&self, read_share: Option<u32>) -> Result<Ycsb> {
        let shape = (self.fields.unwrap_or(FIELDS), self.field_length.unwrap_or(FIELD_LENGTH));
        let records = Records::new(self.records.unwrap_or(ROWS), shape, self.data_seed.unwrap_or(DATA_SEED));
        let mix = match read_share {
            Some(share) => Mix::Share(share, self.write_kind.unwrap_or(WriteKind::Update)),
            None => Mix::Core(self.core.unwrap_or(CoreWorkload::A)),
        };
        Ycsb::new(records, mix, self.distribution, self.transactions(false))
    }

    fn transactions(&self, usual: bool) -> bool {
        self.transactions.map_or(usual, |typed| typed == OnOff::On)
    }
}

impl WorkloadName {
    pub(crate) fn text(self) -> String {
        use clap::ValueEnum as _;
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
