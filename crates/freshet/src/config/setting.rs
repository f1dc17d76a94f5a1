//! The value of a setting, and its source.

use freshet_net::{Upstream, mysql};

use crate::config::fault::Place;
use crate::otlp;

/// The source of a value. An earlier one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    CommandLine,
    Environment,
    File,
    Default,
}

impl Source {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::CommandLine => "command line",
            Self::Environment => "environment",
            Self::File => "file",
            Self::Default => "default",
        }
    }
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) key: String,
    /// The value in the form of the command line. Empty if there is none.
    pub(crate) value: String,
    pub(crate) default: String,
    pub(crate) source: Source,
    pub(crate) secret: bool,
    pub(super) place: Place,
}

impl Setting {
    /// The value without secrets.
    pub(crate) fn shown(&self) -> String {
        if !self.secret || self.value.is_empty() {
            return self.value.clone();
        }
        // None says user, password or token.
        if let Some(url) = otlp::shown(&self.value) {
            return url;
        }
        let mysql = mysql::Upstream::parse(&self.value).map(|upstream| upstream.to_string()).ok();
        let upstream = mysql.or_else(|| Upstream::parse(&self.value).map(|upstream| upstream.to_string()).ok());
        upstream.unwrap_or_else(|| "***".to_owned())
    }
}
