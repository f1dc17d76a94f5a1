//! Zones, drivers and trips, with columns like the trip records that New York's Taxi and Limousine Commission publishes: numbered zones with
//! boroughs, time and place of both ends, distance, fare, tip, total, kind of payment.

use anyhow::Result;

use super::super::distribution::{Distribution, Keys};
use super::super::loading::{Cell, Data, Rows, Table};
use crate::calendar;
use crate::random::Random;
use crate::target::Family;

/// Number of zones, as in New York.
pub(super) const ZONES: usize = 265;
pub(super) const DRIVERS: usize = 2000;
/// Seconds of a day.
pub(super) const DAY: u64 = 86_400;
/// Trips that begin in each second: half a million a day, as in New York.
const RATE: u64 = 6;
/// Seconds that the loaded trips cover: seven days and a half.
const LOADED: u64 = 7 * DAY + DAY / 2;
/// Days from 1970-01-01 to the first day of the trips, 2026-01-01.
const FIRST_DAY: u64 = 20_454;

const BOROUGHS: [&str; 6] = ["Manhattan", "Queens", "Brooklyn", "Bronx", "Staten Island", "Airports"];
const PARTS: [&str; 5] = ["North", "South", "East", "West", "Central"];

const ZONE: usize = 1;
const DRIVER: usize = 2;
const TRIP: usize = 0;

/// The loaded trips, whose keys are 1 to their number.
#[derive(Debug)]
pub(in super::super) struct Trips {
    count: u64,
    seed: u64,
    zones: Keys,
    drivers: Keys,
}

impl Trips {
    pub(in super::super) fn new(count: u32, seed: u64) -> Result<Self> {
        let keys = |count| Keys::new(Distribution::Zipfian, count);
        Ok(Self { count: u64::from(count), seed, zones: keys(ZONES)?, drivers: keys(DRIVERS)? })
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }
}

/// Start time of an inserted trip, in seconds since the first day. It is later than all loaded trips.
pub(super) const fn begins(place: u64) -> u64 {
    LOADED + place / RATE
}

impl Data for Trips {
    fn kind(&self) -> &'static str {
        "taxi-trips"
    }

    fn settings(&self) -> Vec<(String, String)> {
        vec![("rows".to_owned(), self.count.to_string()), ("data-seed".to_owned(), self.seed.to_string())]
    }

    /// PostgreSQL logs the whole old row of a changed trip (REPLICA IDENTITY FULL): the end of a trip affects its driver and its zone, which are not
    /// the key.
    fn tables(&self, family: Family) -> Vec<Table> {
        let times = if family == Family::Postgres { "timestamp" } else { "datetime" };
        let trip = format!(
            "trip_id bigint NOT NULL, driver_id integer NOT NULL, vendor_id integer NOT NULL, pickup_time {times} NOT NULL, \
             dropoff_time {times}, pickup_zone integer NOT NULL, dropoff_zone integer, passengers integer NOT NULL, \
             distance numeric(6,2), fare numeric(8,2), tip numeric(8,2), total numeric(8,2), payment_type integer"
        );
        let mut after = vec![
            "CREATE INDEX taxi_trip_driver_idx ON taxi_trip (driver_id, pickup_time)".to_owned(),
            "CREATE INDEX taxi_trip_zone_idx ON taxi_trip (pickup_zone, pickup_time)".to_owned(),
        ];
        if family == Family::Postgres {
            after.push("ALTER TABLE taxi_trip REPLICA IDENTITY FULL".to_owned());
        }
        let zone = "zone_id integer NOT NULL, borough varchar(20) NOT NULL, zone_name varchar(60) NOT NULL, \
                    service_zone varchar(20) NOT NULL";
        let driver = "driver_id integer NOT NULL, licence varchar(20) NOT NULL, home_zone integer NOT NULL";
        let table = |name: &str, columns: &str, key, after| Table {
            name: name.to_owned(),
            columns: columns.to_owned(),
            key,
            after,
        };
        vec![
            table("taxi_trip", &trip, "trip_id", after),
            table("taxi_zone", zone, "zone_id", Vec::new()),
            table("taxi_driver", driver, "driver_id", Vec::new()),
        ]
    }

    fn steps(&self) -> u64 {
        self.count + (ZONES + DRIVERS) as u64
    }

    fn step(&self, number: u64, rows: &mut Rows) -> Result<()> {
        let mut random = Random::numbered(self.seed, number);
        let number = number as usize;
        if number < ZONES {
            add_zone(rows, number);
        } else if number < ZONES + DRIVERS {
            let driver = number - ZONES + 1;
            let (licence, home) = (format!("T{:06}C", 400_000 + driver * 37), 1 + random.below(ZONES));
            rows.add(DRIVER, &[Cell::int(driver), Cell::Text(&licence), Cell::int(home)]);
        } else {
            self.add_trip(rows, &mut random, (number - ZONES - DRIVERS) as u64);
        }
        Ok(())
    }
}

fn add_zone(rows: &mut Rows, number: usize) {
    let borough = BOROUGHS[if number < 3 { 5 } else { number % 5 }];
    let name = format!("{borough} {} {}", PARTS[number / 5 % 5], number / 25 + 1);
    let service = if borough == "Manhattan" { "Yellow Zone" } else { "Boro Zone" };
    rows.add(ZONE, &[Cell::int(number + 1), Cell::Text(borough), Cell::Text(&name), Cell::Text(service)]);
}

impl Trips {
    /// Adds a trip of the past, which has ended.
    fn add_trip(&self, rows: &mut Rows, random: &mut Random, place: u64) {
        let began = LOADED * place / self.count;
        let end = End::of(random);
        let cells = [
            Cell::Int((place + 1).cast_signed()),
            Cell::int(1 + self.drivers.draw(random)),
            Cell::int(1 + random.below(2)),
            Cell::Text(&time(began)),
            Cell::Text(&time(began + end.seconds)),
            Cell::int(1 + self.zones.draw(random)),
            Cell::int(1 + self.zones.draw(random)),
            Cell::int(1 + random.skewed(6)),
            Cell::Text(&end.distance),
            Cell::Text(&end.fare),
            Cell::Text(&end.tip),
            Cell::Text(&end.total),
            Cell::Int(end.payment_type),
        ];
        rows.add(TRIP, &cells);
    }
}

/// The columns that are set when a trip ends. Numbers are texts with two decimals.
#[derive(Debug)]
pub(super) struct End {
    pub(super) seconds: u64,
    pub(super) distance: String,
    pub(super) fare: String,
    pub(super) tip: String,
    pub(super) total: String,
    /// 1 is a card, 2 is cash.
    pub(super) payment_type: i64,
}

impl End {
    pub(super) fn of(random: &mut Random) -> Self {
        let minutes = 3 + random.skewed(57);
        // Hundredths of a mile, and cents. A fare is 3.00 plus 2.50 for each mile; some passengers leave a fifth of it as a tip.
        let distance = minutes * (15 + random.below(20));
        let fare = 300 + distance * 5 / 2;
        let card = random.below(10) < 7;
        let tip = if card && random.below(4) > 0 { fare / 5 } else { 0 };
        let decimals = |hundredths: usize| format!("{}.{:02}", hundredths / 100, hundredths % 100);
        Self {
            seconds: (minutes * 60 + random.below(60)) as u64,
            distance: decimals(distance),
            fare: decimals(fare),
            tip: decimals(tip),
            total: decimals(fare + tip + 250),
            payment_type: if card { 1 } else { 2 },
        }
    }
}

/// Seconds since the first day, as an SQL literal.
pub(super) fn time(seconds: u64) -> String {
    calendar::date_time(FIRST_DAY * DAY + seconds)
}
