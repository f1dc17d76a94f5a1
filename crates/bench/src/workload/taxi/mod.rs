//! `taxi-trips`: rows that are written all the time and read while they are new.
//!
//! A trip is inserted when it begins and updated when it ends, as in the operations of a taxi company. The reads are the newest trips of a driver, a
//! trip by key, and the statistics of a zone for a day. `--read-share` is the percentage of reading transactions:
//!
//! | transaction | statements |
//! |---|---|
//! | a driver's page (half of the reads) | the last ten trips with the names of their zones; one of the newest trips |
//! | a zone's page (the other half) | count and averages of a day; fares by hour of a day |
//! | a trip begins, or an earlier one of the same connection ends | one INSERT or one UPDATE |
//!
//! Zones and drivers are drawn by the distribution (`zipfian` by default), for reads and writes alike. The zones with the most trips are read most,
//! so the cached results change most. Time advances with the trips: each begins two seconds after the one before. The days are today and earlier
//! ones, and older days are rarer.

mod rows;

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::{Result, ensure};
use indicatif::ProgressBar;

use super::OnOff;
use super::distribution::{Distribution, Keys, id};
use super::ledger::{Current, Ledger};
use super::loading::{self, Data};
use super::{Pending, Script, Workload};
use crate::driver::Failure;
use crate::random::Random;
use crate::session::Session;
use crate::statement::Statement;
use crate::target::Target;
use crate::value::Value;

pub(super) use rows::Trips;
use rows::{DAY, DRIVERS, End, ZONES, begins, time};

const RECENT: usize = 0;
const TRIP: usize = 1;
const ZONE: usize = 2;
const HOURS: usize = 3;
const BEGIN: usize = 4;
const END: usize = 5;

/// `(name, text)` of the reads.
const READS: [(&str, &str); 4] = [
    (
        "recent trips of a driver",
        "SELECT t.trip_id, t.pickup_time, t.dropoff_time, p.zone_name AS pickup, d.zone_name AS dropoff, t.total \
         FROM taxi_trip t JOIN taxi_zone p ON p.zone_id = t.pickup_zone \
         LEFT JOIN taxi_zone d ON d.zone_id = t.dropoff_zone WHERE t.driver_id = $1 \
         ORDER BY t.pickup_time DESC, t.trip_id DESC LIMIT 10",
    ),
    (
        "trip by key",
        "SELECT trip_id, driver_id, vendor_id, pickup_time, dropoff_time, pickup_zone, dropoff_zone, passengers, distance, \
         fare, tip, total, payment_type FROM taxi_trip WHERE trip_id = $1",
    ),
    (
        "zone statistics",
        "SELECT z.borough, z.zone_name, count(*) AS trips, avg(t.distance) AS distance, avg(t.total) AS total, \
         sum(t.tip) AS tips FROM taxi_trip t JOIN taxi_zone z ON z.zone_id = t.pickup_zone \
         WHERE t.pickup_zone = $1 AND t.pickup_time >= $2 AND t.pickup_time < $3 GROUP BY z.borough, z.zone_name",
    ),
    (
        "fares by hour",
        "SELECT extract(hour FROM t.pickup_time) AS pickup_hour, count(*) AS trips, avg(t.fare) AS fare FROM taxi_trip t \
         WHERE t.pickup_zone = $1 AND t.pickup_time >= $2 AND t.pickup_time < $3 \
         GROUP BY pickup_hour ORDER BY pickup_hour",
    ),
];
const WRITES: [(&str, &str); 2] = [
    (
        "trip begins",
        "INSERT INTO taxi_trip (trip_id, driver_id, vendor_id, pickup_time, pickup_zone, passengers) \
         VALUES ($1, $2, $3, $4, $5, $6)",
    ),
    (
        "trip ends",
        "UPDATE taxi_trip SET dropoff_time = $2, dropoff_zone = $3, distance = $4, fare = $5, tip = $6, total = $7, \
         payment_type = $8 WHERE trip_id = $1",
    ),
];

/// The most unfinished trips of a connection.
const OPEN_TRIPS_MAX: usize = 8;
/// Number of requested days, today included.
const DAYS_ASKED: usize = 7;
/// Trips that are read by key are among this many of the newest.
const NEWEST: usize = 1000;

/// The workload.
#[derive(Debug)]
pub(super) struct TaxiTrips {
    shared: Arc<Shared>,
    transactions: bool,
    statements: Arc<[Statement]>,
    ledger: Current,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    trips: Trips,
    /// Percentage of transactions that read.
    read_share: u32,
    distribution: Distribution,
    zones: Keys,
    drivers: Keys,
}

impl TaxiTrips {
    pub(super) fn new(trips: Trips, read_share: u32, distribution: Distribution, transactions: bool) -> Result<Self> {
        ensure!(read_share <= 100, "--read-share is a percentage: 0 to 100");
        let (zones, drivers) = (Keys::new(distribution, ZONES)?, Keys::new(distribution, DRIVERS)?);
        let reads = READS.iter().map(|(name, text)| Statement::read(name, text).ordered());
        let writes = WRITES.iter().map(|(name, text)| Statement::write(name, text));
        let statements = reads.chain(writes).collect();
        let shared = Arc::new(Shared { trips, read_share, distribution, zones, drivers });
        Ok(Self { shared, transactions, statements, ledger: Current::new() })
    }

    fn connection(&self, random: Random, read_share: u32) -> Connection {
        let (shared, ledger) = (Arc::clone(&self.shared), self.ledger.get());
        Connection { shared, ledger, read_share, transactions: self.transactions, random, open_trips: VecDeque::new() }
    }
}

impl Workload for TaxiTrips {
    fn name(&self) -> &'static str {
        "taxi-trips"
    }

    fn settings(&self) -> Vec<(String, String)> {
        let mut settings = Data::settings(&self.shared.trips);
        settings.push(("read-share".to_owned(), self.shared.read_share.to_string()));
        settings.push(("distribution".to_owned(), self.shared.distribution.to_string()));
        settings.push(("transactions".to_owned(), OnOff::text(self.transactions).to_owned()));
        settings
    }

    fn statements(&self) -> Arc<[Statement]> {
        Arc::clone(&self.statements)
    }

    fn begin_round(&self) {
        self.ledger.renew();
    }

    fn script(&self, random: Random) -> Script {
        Script::TaxiTrips(self.connection(random, self.shared.read_share))
    }

    /// The writer only begins and ends trips.
    fn writer(&self, random: Random) -> Option<Script> {
        Some(Script::TaxiTrips(self.connection(random, 0)))
    }

    fn draw_read(&self, random: &mut Random) -> (usize, Vec<Value>) {
        let statement = random.below(READS.len());
        (statement, self.shared.values(statement, &self.ledger.get(), random))
    }

    fn load<'a>(&'a self, target: &'a Target, bar: &'a ProgressBar) -> Pending<'a, u64> {
        // The load replaced the tables, so rows of earlier rounds are gone.
        self.ledger.renew();
        Box::pin(loading::load(&self.shared.trips, target, bar))
    }

    fn ready<'a>(&'a self, database: &'a Target) -> Pending<'a, ()> {
        Box::pin(loading::ready(&self.shared.trips, self.name(), database))
    }
}

impl Shared {
    fn zone(&self, random: &mut Random) -> Value {
        Value::Int(id(self.zones.draw(random)))
    }

    fn driver(&self, random: &mut Random) -> Value {
        Value::Int(id(self.drivers.draw(random)))
    }

    /// Draws the parameters of a read.
    fn values(&self, statement: usize, ledger: &Ledger, random: &mut Random) -> Vec<Value> {
        match statement {
            RECENT => vec![self.driver(random)],
            TRIP => vec![self.trip(ledger, random)],
            _ => {
                let zone = self.zone(random);
                let today = begins(ledger.rows()) / DAY * DAY;
                let day = today - random.skewed(DAYS_ASKED) as u64 * DAY;
                vec![zone, Value::from(time(day)), Value::from(time(day + DAY))]
            }
        }
    }

    /// The key of one of the newest trips that exist.
    fn trip(&self, ledger: &Ledger, random: &mut Random) -> Value {
        let (loaded, inserted) = (self.trips.count(), ledger.rows());
        let place = (loaded + inserted).saturating_sub(1 + random.skewed(NEWEST) as u64);
        let number = place.checked_sub(loaded).map_or(place + 1, |place| ledger.number(place));
        Value::Int(number.cast_signed())
    }
}

/// A trip that has begun.
#[derive(Clone, Copy, Debug)]
struct OpenTrip {
    number: u64,
    /// Start time in seconds since the first day.
    began: u64,
}

/// The script of one connection.
#[derive(Debug)]
pub struct Connection {
    shared: Arc<Shared>,
    ledger: Arc<Ledger>,
    read_share: u32,
    transactions: bool,
    random: Random,
    open_trips: VecDeque<OpenTrip>,
}

impl Connection {
    pub(super) async fn run(&mut self, session: &mut Session) -> Result<(), Failure> {
        if self.random.below(100) < self.read_share as usize {
            let page = if self.random.below(2) == 0 { [RECENT, TRIP] } else { [ZONE, HOURS] };
            return self.read(session, page).await;
        }
        // As many trips end as begin.
        let ends =
            self.open_trips.len() == OPEN_TRIPS_MAX || (!self.open_trips.is_empty() && self.random.below(2) == 0);
        match if ends { self.open_trips.pop_front() } else { None } {
            Some(trip) => self.end(session, trip).await,
            None => self.begin(session).await,
        }
    }

    async fn read(&mut self, session: &mut Session, page: [usize; 2]) -> Result<(), Failure> {
        self.open(session).await?;
        // Both statements of a zone's page have the same zone and day.
        let first = self.shared.values(page[0], &self.ledger, &mut self.random);
        // The trip is drawn first: a transaction with repeatable reads does not see a trip that begins after its first statement.
        let trip = (page[1] == TRIP).then(|| self.shared.trip(&self.ledger, &mut self.random));
        session.run(page[0], &first).await?;
        if let Some(trip) = trip {
            if session.run(TRIP, std::slice::from_ref(&trip)).await? == 0 {
                return Err(Failure::no_row(&format!("trip {trip:?} was not found")));
            }
        } else {
            session.run(page[1], &first).await?;
        }
        self.close(session).await
    }

    async fn begin(&mut self, session: &mut Session) -> Result<(), Failure> {
        let taken = self.ledger.take();
        let began = begins(taken.place);
        let random = &mut self.random;
        let values = [
            Value::Int(taken.number.cast_signed()),
            self.shared.driver(random),
            Value::Int(id(random.below(2))),
            Value::from(time(began)),
            self.shared.zone(random),
            Value::Int(id(random.skewed(6))),
        ];
        let done = self.write(session, BEGIN, &values).await;
        self.ledger.settle(taken, done, session).await?;
        self.open_trips.push_back(OpenTrip { number: taken.number, began });
        Ok(())
    }

    async fn end(&mut self, session: &mut Session, trip: OpenTrip) -> Result<(), Failure> {
        let end = End::of(&mut self.random);
        let values = [
            Value::Int(trip.number.cast_signed()),
            Value::from(time(trip.began + end.seconds)),
            self.shared.zone(&mut self.random),
            Value::from(end.distance),
            Value::from(end.fare),
            Value::from(end.tip),
            Value::from(end.total),
            Value::Int(end.payment_type),
        ];
        self.write(session, END, &values).await
    }

    async fn write(&self, session: &mut Session, statement: usize, values: &[Value]) -> Result<(), Failure> {
        self.open(session).await?;
        session.run(statement, values).await?;
        self.close(session).await
    }

    async fn open(&self, session: &mut Session) -> Result<(), Failure> {
        if self.transactions { session.begin().await } else { Ok(()) }
    }

    async fn close(&self, session: &mut Session) -> Result<(), Failure> {
        if self.transactions { session.commit().await } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
