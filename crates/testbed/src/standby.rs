//! Streaming standbys: while a commit waits for one, the change stream is ahead of what snapshots see.

use anyhow::{Context, Result};

use crate::process::{self, Process};
use crate::server::{Server, run};

impl Server {
    /// Copies this server and starts the copy as a hot standby that streams under the given `application_name`, the
    /// name that `synchronous_standby_names` refers to.
    pub fn standby(&self, name: &str) -> Result<Self> {
        let mut standby = Self::reserve(&self.installation, &self.settings)?;
        let mut backup = self.command("pg_basebackup");
        backup.arg("-d").arg(format!("{}?application_name={name}", self.url())).arg("-D").arg(standby.data_dir());
        backup.args(["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]);
        run(backup, "pg_basebackup")?;
        standby.start_on_free_port()?;
        Ok(standby)
    }

    /// Stops the standby's receiver: it confirms nothing more, and commits wait for it.
    pub fn pause_receiver(&self) -> Result<()> {
        process::pause(self.receiver()?.pid)
    }

    /// Continues the receiver.
    pub fn resume_receiver(&self) -> Result<()> {
        process::resume(self.receiver()?.pid)
    }

    fn receiver(&self) -> Result<Process> {
        let receiver = self.children()?.into_iter().find(|process| process.title().contains("walreceiver"));
        receiver.context("the server has no walreceiver: it is no standby, or not connected to its primary")
    }
}
