//! What a million queries cost on a machine that is paid by the hour.

use std::str::FromStr;

use super::super::figures::{NONE, number};
use super::super::grid::Grid;
use super::super::tables::{Group, place};

/// What the machine costs for an hour: `0.0832 USD`.
#[derive(Clone, Debug, PartialEq)]
pub struct Price {
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
        Ok(Self { amount, currency: currency.trim().to_owned() })
    }
}

impl Price {
    /// Of a million queries at so many a second.
    fn of_a_million(&self, queries_per_second: f64) -> Option<f64> {
        (queries_per_second > 0.0).then(|| self.amount / 3_600.0 * 1e6 / queries_per_second)
    }

    /// What the figures rest on.
    pub(super) fn assumption(&self) -> String {
        format!(
            "At {} {} an hour for the machine on which all of it ran, the load itself included, and at the throughput that was \
             measured.",
            self.amount, self.currency
        )
    }

    pub(super) fn grid(&self, group: &Group<'_>) -> Grid {
        let header = format!("{} per million queries", self.currency);
        let mut grid = Grid::new(&["cell", "target"], ["queries/s", header.as_str()]);
        for (cell, summaries) in &group.cells {
            for summary in summaries {
                let rate = summary.load.queries.median;
                let price = self.of_a_million(rate).map_or(NONE.to_owned(), figure);
                grid.row(vec![place(cell), summary.target.clone(), number(rate), price]);
            }
        }
        grid
    }
}

/// Three digits that count, however small it is.
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
        assert_eq!(price, Price { amount: 0.36, currency: "EUR".to_owned() });
        assert_eq!(price.of_a_million(20_000.0).map(figure), Some("0.00500".to_owned()));
        assert_eq!([price.of_a_million(0.0), price.of_a_million(f64::NAN)], [None, None]);
        assert_eq!(figure(12.3456), "12.35");
        for wrong in ["0.36", "x EUR", "-1 EUR", "NaN EUR"] {
            assert!(wrong.parse::<Price>().is_err(), "{wrong}");
        }
    }
}
