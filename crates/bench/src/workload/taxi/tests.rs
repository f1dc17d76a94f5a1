//! Times, trips, and the drawn parameters.

use std::collections::HashMap;

use super::*;
use crate::target::Family;

fn workload(read_share: u32) -> TaxiTrips {
    TaxiTrips::new(Trips::new(5000, 1).unwrap(), read_share, Distribution::Zipfian, false).unwrap()
}

#[test]
fn times_are_dates() {
    let day = |days: u64| time(days * DAY);
    assert_eq!(time(0), "2026-01-01 00:00:00");
    assert_eq!(time(86_399), "2026-01-01 23:59:59");
    assert_eq!(
        (day(31), day(58), day(59)),
        ("2026-02-01 00:00:00".into(), "2026-02-28 00:00:00".into(), "2026-03-01 00:00:00".into())
    );
    // 2028 has a 29th of February.
    assert_eq!((day(789), day(790)), ("2028-02-29 00:00:00".into(), "2028-03-01 00:00:00".into()));
}

#[test]
fn loaded_trips_lie_before_those_of_a_round_and_repeat_themselves() {
    let rows = |seed| {
        let trips = Trips::new(5000, seed).unwrap();
        let mut rows = loading::Rows::new(Family::Postgres, 3);
        (0..trips.steps()).for_each(|number| trips.step(number, &mut rows).unwrap());
        std::iter::from_fn(move || rows.take(0)).collect::<HashMap<_, _>>()
    };
    let (first, other) = (rows(1), rows(2));
    assert_eq!(first, rows(1));
    assert_ne!(first, other);
    let began: Vec<&str> = first[&0].lines().map(|line| line.split('\t').nth(3).unwrap()).collect();
    assert!(began.is_sorted() && began.len() == 5000);
    assert!(began[0] >= "2026-01-01" && began[4999] < time(begins(0)).as_str());
    assert_eq!((first[&1].lines().count(), first[&2].lines().count()), (ZONES, DRIVERS));
    for line in first[&0].lines() {
        let cents = |column| line.split('\t').nth(column).unwrap().replace('.', "").parse::<u64>().unwrap();
        assert_eq!(cents(11), cents(9) + cents(10) + 250, "{line}");
    }
}

#[test]
fn what_is_read_is_there() {
    let (workload, mut random) = (workload(50), Random::new(1));
    let ledger = workload.ledger.get();
    let taken: Vec<_> = (0..300).map(|_| ledger.take()).collect();
    taken[..200].iter().for_each(|one| ledger.acknowledge(*one));
    let (mut newest, mut loaded) = (0, 0);
    for _ in 0..4000 {
        let (statement, values) = workload.draw_read(&mut random);
        let text = workload.statements[statement].prepared_text(Family::Postgres);
        assert!(text.contains(&format!("${}", values.len())) && !text.contains(&format!("${}", values.len() + 1)));
        if statement == TRIP {
            let Value::Int(number) = values[0] else { panic!("{values:?}") };
            let number = number.cast_unsigned();
            newest += usize::from((ledger.number(0)..ledger.number(200)).contains(&number));
            loaded += usize::from((1..=5000).contains(&number));
        }
    }
    assert!(newest > 500 && loaded > 100 && (900..1100).contains(&(newest + loaded)), "{newest} {loaded}");
}
