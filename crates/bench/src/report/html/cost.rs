//! The cost of a million queries on a machine with an hourly price.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::super::figures::{NONE, number};
use super::super::grid::Grid;
use super::super::tables::{Group, place};

/// The price of the machine for an hour: `0.0832 USD`.
#[derive(Clone, Debug, PartialEq)]
pub struct Price {
    /// The machine's name, if the price is from a list.
    machine: Option<String>,
    amount: f64,
    currency: String,
}

impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (amount, currency) = text.trim().split_once(' ').ok_or("it is an amount and a currency: '0.0832 USD'")?;
        let amount: f64 = amount.parse().map_err(|_| format!("{amount:?} is no amount"))?;
        if !amount.is_finite() || amount <= 0.0 {
            return Err("a price is more than 0".to_owned());
        }
        Ok(Self { machine: None, amount, currency: currency.trim().to_owned() })
    }
}

impl Price {
    /// Sets the machine's name.
    pub(in super::super) fn named(mut self, machine: &str) -> Self {
        self.machine = Some(machine.to_owned());
        self
    }

    /// The cost of a million queries at this rate.
    fn of_a_million(&self, queries_per_second: f64) -> Option<f64> {
        (queries_per_second > 0.0).then(|| self.amount / 3_600.0 * 1e6 / queries_per_second)
    }

    fn shown(&self) -> String {
        let hourly = format!("{} {} an hour", self.amount, self.currency);
        self.machine.as_ref().map_or(hourly.clone(), |machine| format!("{machine} at {hourly}"))
    }

    fn header(&self) -> String {
        let header = format!("{} per million queries", self.currency);
        self.machine.as_ref().map_or(header.clone(), |machine| format!("{machine}, {header}"))
    }
}

/// The assumptions of the figures.
pub(super) fn assumption(prices: &[Price]) -> String {
    let shown: Vec<String> = prices.iter().map(Price::shown).collect();
    let measured = "for the machine that ran everything, the load included, at the measured throughput.";
    match shown.as_slice() {
        [one] => format!("At {one} {measured}"),
        several => format!(
            "As if this machine were, in turn, {}: {measured} A faster machine answers more: the table compares targets, not machines.",
            several.join(", ")
        ),
    }
}

/// A table with a row for each target of each cell.
pub(super) fn grid(prices: &[Price], group: &Group<'_>) -> Grid {
    let headers: Vec<String> =
        std::iter::once("queries/s".to_owned()).chain(prices.iter().map(Price::header)).collect();
    let mut grid = Grid::new(&["cell", "target"], headers.iter().map(String::as_str));
    for (cell, summaries) in &group.cells {
        for summary in summaries {
            let rate = summary.load.queries.median;
            let mut row = vec![place(cell), summary.target.clone(), number(rate)];
            row.extend(prices.iter().map(|price| price.of_a_million(rate).map_or(NONE.to_owned(), figure)));
            grid.row(row);
        }
    }
    grid
}

/// A file of prices: `currency`, and `[per_hour]` with the price of each machine by name.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    currency: String,
    per_hour: BTreeMap<String, f64>,
}

/// Parses a file of prices. The machines are in the order of their names.
pub(in super::super) fn list(text: &str) -> Result<Vec<Price>, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let price = |(machine, amount): (&String, &f64)| {
        let price: Price =
            format!("{amount} {}", file.currency).parse().map_err(|error| format!("{machine}: {error}"))?;
        Ok(price.named(machine))
    };
    file.per_hour.iter().map(price).collect()
}

/// A figure with three significant digits.
fn figure(value: f64) -> String {
    let digits = (2..9).find(|digits| value * 10f64.powi(*digits) >= 100.0).unwrap_or(9);
    format!("{value:.*}", digits.unsigned_abs() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_an_amount_and_a_currency() {
        let price: Price = "0.36 EUR".parse().unwrap();
        assert_eq!(price, Price { machine: None, amount: 0.36, currency: "EUR".to_owned() });
        assert_eq!(price.of_a_million(20_000.0).map(figure), Some("0.00500".to_owned()));
        assert_eq!([price.of_a_million(0.0), price.of_a_million(f64::NAN)], [None, None]);
        assert_eq!(figure(12.3456), "12.35");
        for wrong in ["0.36", "x EUR", "-1 EUR", "NaN EUR"] {
            assert!(wrong.parse::<Price>().is_err(), "{wrong}");
        }
    }
    #[test]
    fn a_list_of_prices_names_its_machines() {
        let prices = list("currency = \"USD\"\n[per_hour]\n\"b.large\" = 0.2\n\"a.large\" = 0.1\n").unwrap();
        assert_eq!(
            prices.iter().map(Price::shown).collect::<Vec<_>>(),
            ["a.large at 0.1 USD an hour", "b.large at 0.2 USD an hour"]
        );
        assert_eq!(prices[0].header(), "a.large, USD per million queries");
        for wrong in ["", "currency = \"USD\"", "currency = \"USD\"\n[per_hour]\na = -1", "price = 1"] {
            assert!(list(wrong).is_err(), "{wrong}");
        }
    }
}
