//! The files that are written in addition to the document of a run: HTML and CSV.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;

use super::csv::csv;
use super::entry::Entry;
use super::extra::Extra;
use super::html::{Options, Price, html, price_list};
use super::tables::Group;

/// The files to write, and the settings of the page.
#[derive(Clone, Debug, Default, Args)]
pub struct PageArgs {
    /// Also write the results as a self-contained HTML page with charts
    #[arg(long)]
    pub html: Option<PathBuf>,
    /// Also write the figures as CSV, a line for each target of each cell
    #[arg(long)]
    pub csv: Option<PathBuf>,
    /// Price of the machine for an hour, such as '0.0832 USD'; the page then shows the cost of a million queries
    #[arg(long, requires = "html")]
    pub price_per_hour: Option<Price>,
    /// A file with the prices of several machines (docs/guide/bench.md)
    #[arg(long, requires = "html", conflicts_with = "price_per_hour")]
    pub price_list: Option<PathBuf>,
    /// WORKLOAD=NUMBER, the weight of a workload in the page's geometric mean  [default: 1 each]
    #[arg(long = "weight", requires = "html", value_parser = weight)]
    pub weights: Vec<(String, f64)>,
}

fn weight(text: &str) -> Result<(String, f64), String> {
    let (name, weight) = text.split_once('=').ok_or("it is WORKLOAD=NUMBER")?;
    let weight: f64 = weight.parse().map_err(|_| format!("{weight:?} is not a number"))?;
    if weight.is_finite() && weight >= 0.0 {
        Ok((name.to_owned(), weight))
    } else {
        Err("a weight is 0 or more".to_owned())
    }
}

impl PageArgs {
    /// Writes the requested files.
    pub fn write(&self, entries: &[Entry]) -> Result<()> {
        self.write_all(entries, &[])
    }

    fn prices(&self) -> Result<Vec<Price>> {
        let Some(path) = &self.price_list else { return Ok(self.price_per_hour.iter().cloned().collect()) };
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        price_list(&text).map_err(|error| anyhow!("{}: {error}", path.display()))
    }

    /// Writes the requested files. The page also contains `extras`.
    pub fn write_all(&self, entries: &[Entry], extras: &[Extra]) -> Result<()> {
        if self.html.is_none() && self.csv.is_none() {
            return Ok(());
        }
        let workload = |name: &str| entries.iter().flat_map(|entry| &entry.run.cells).any(|cell| cell.workload == name);
        for (name, _) in &self.weights {
            ensure!(workload(name), "--weight {name}: there is no such workload");
        }
        let entries: Vec<(&Entry, Vec<Group<'_>>)> =
            entries.iter().map(|entry| (entry, Group::all(&entry.run))).collect();
        let figures = csv(&entries)?;
        if let Some(path) = &self.html {
            let weights: BTreeMap<String, f64> = self.weights.iter().cloned().collect();
            let prices = self.prices()?;
            let page = html(&entries, &figures, Options { prices: &prices, weights: Some(&weights), extras });
            std::fs::write(path, page).with_context(|| path.display().to_string())?;
        }
        if let Some(path) = &self.csv {
            std::fs::write(path, figures).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

/// Writes a page with these documents only.
pub fn write_extras(path: &Path, extras: &[Extra]) -> Result<()> {
    PageArgs { html: Some(path.to_owned()), ..PageArgs::default() }.write_all(&[], extras)
}
