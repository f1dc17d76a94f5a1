//! The options of the web endpoints.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use freshet_net::tls::ServerFiles;

use crate::endpoint::Endpoint;

/// Options of `freshet serve` about the web endpoints.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Dashboard, metrics and probes")]
pub(crate) struct WebArgs {
    /// Address of the dashboard, /api, /metrics and the probes /livez, /readyz and /cachez
    #[arg(long)]
    pub(super) http: Option<SocketAddr>,
    /// File with the token that the dashboard, /api and /metrics ask for, as "Authorization: Bearer" or as the password of
    /// any user; the probes need none
    #[arg(long, value_name = "FILE")]
    pub(super) http_token_file: Option<PathBuf>,
    /// Certificate (chain) of the --http address, PEM; without it there is no TLS there
    #[arg(long, value_name = "FILE")]
    pub(super) http_tls_cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE")]
    pub(super) http_tls_key: Option<PathBuf>,
    /// Price of a GB of memory for a month, such as "4.50 USD": the dashboard shows the cost of smaller and larger
    /// caches
    #[arg(long, value_name = "PRICE")]
    pub(super) price: Option<Price>,
}

impl WebArgs {
    /// Options that need another one, each with its key.
    pub(crate) fn faults(&self) -> Vec<(&'static str, String)> {
        let (cert, key) = (self.http_tls_cert.is_some(), self.http_tls_key.is_some());
        let needs = |wrong: bool, key, other: &str| wrong.then(|| (key, format!("{other} must be given as well")));
        let faults = [
            needs(cert && !key, "http_tls_cert", "http_tls_key"),
            needs(key && !cert, "http_tls_key", "http_tls_cert"),
            needs(cert && self.http.is_none(), "http_tls_cert", "http"),
            needs(self.http_token_file.is_some() && self.http.is_none(), "http_token_file", "http"),
        ];
        faults.into_iter().flatten().collect()
    }

    /// The endpoints of a Freshet with this configuration, for another program on the same machine. None: it has none.
    pub(crate) fn local_endpoint(&self) -> anyhow::Result<Option<Endpoint>> {
        let Some(address) = self.http else { return Ok(None) };
        let (token, cert) = (self.http_token_file.as_deref(), self.http_tls_cert.as_deref());
        Endpoint::local(address.to_string(), token, cert).map(Some)
    }

    pub(super) fn tls(&self) -> Option<ServerFiles> {
        let (cert, key) = self.http_tls_cert.clone().zip(self.http_tls_key.clone())?;
        Some(ServerFiles { cert, key, client_ca: None })
    }
}

/// The price of a GB of memory for a month.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Price {
    pub(super) amount: f64,
    /// May be empty.
    pub(super) currency: String,
}

impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (amount, currency) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        match amount.parse::<f64>() {
            Ok(amount) if amount.is_finite() && amount >= 0.0 && currency.len() <= 16 => {
                Ok(Self { amount, currency: currency.trim().to_owned() })
            }
            _ => Err("an amount and a currency are expected, such as \"4.50 USD\"".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_an_amount_and_a_currency() {
        let price = |text: &str| Price::from_str(text).map(|price| (price.amount, price.currency));
        assert_eq!(price("4.50 USD"), Ok((4.5, "USD".to_owned())));
        assert_eq!(price(" 3 "), Ok((3.0, String::new())));
        for text in ["", "USD", "-1 EUR", "NaN", "inf EUR", "1 a currency without a name"] {
            assert!(price(text).is_err(), "{text}");
        }
    }
}
