//! The value of one setting, and where it comes from.

use freshet_net::{Upstream, mysql};

use crate::config::fault::Place;

/// Where a value comes from. The earlier wins.
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

/// The value of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) key: String,
    /// As it would be typed; empty if there is none.
    pub(crate) value: String,
    pub(crate) default: String,
    pub(crate) source: Source,
    pub(crate) secret: bool,
    pub(super) place: Place,
}

impl Setting {
    /// The value for people: without what must not be shown.
    pub(crate) fn shown(&self) -> String {
        if !self.secret || self.value.is_empty() {
            return self.value.clone();
        }
        // Neither says user or password.
        let mysql = mysql::Upstream::parse(&self.value).map(|upstream| upstream.to_string()).ok();
        let upstream = mysql.or_else(|| Upstream::parse(&self.value).map(|upstream| upstream.to_string()).ok());
        upstream.unwrap_or_else(|| "***".to_owned())
    }
}
