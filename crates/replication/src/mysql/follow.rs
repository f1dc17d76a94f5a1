//! The follower of a binlog: see [`crate::follow`].

use std::fmt::Display;
use std::sync::Arc;

use freshet_types::Lsn;

use crate::error::Fault;
use crate::follow::{self, Family};
use crate::mysql::FollowerConfig;
use crate::mysql::progress::Progress;
use crate::mysql::session::Session;
use crate::mysql::setup::{self, Opened};
use crate::{Control, Identity, Sink};

/// Follows the upstream until [`Control::shutdown`]. After a fault it continues the epoch if only the connection was lost. Otherwise it begins a new
/// epoch.
pub async fn follow(config: FollowerConfig, sink: Arc<dyn Sink>, control: Arc<Control>) {
    follow::follow(MySql { config }, sink, control).await;
}

struct MySql {
    config: FollowerConfig,
}

/// A connection that sends the binlog, and its first packet.
struct Connection {
    opened: Opened,
    first: Vec<u8>,
    /// The stream begins a new epoch.
    begins: bool,
}

impl Family for MySql {
    type Connection = Connection;
    type Progress = Progress;

    fn upstream(&self) -> &impl Display {
        &self.config.upstream
    }

    async fn open(&self, progress: Option<&Progress>) -> Result<Connection, Fault> {
        let opened = setup::open(&self.config).await?;
        Ok(Connection { opened, first: Vec::new(), begins: progress.is_none() })
    }

    fn identity(connection: &Connection) -> &Identity {
        &connection.opened.identity
    }

    async fn start(&self, connection: &mut Connection, told: &(dyn Fn(&str) + Sync)) -> Result<Progress, Fault> {
        let host = connection.opened.client.host();
        let start = setup::start(&mut connection.opened, &self.config, told);
        let progress = setup::at_host(&self.config, host, start).await?;
        self.resume(connection, &progress).await?;
        Ok(progress)
    }

    async fn resume(&self, connection: &mut Connection, progress: &Progress) -> Result<(), Fault> {
        let host = connection.opened.client.host();
        let first = setup::follow_from(&mut connection.opened, &self.config, progress);
        connection.first = setup::at_host(&self.config, host, first).await?;
        Ok(())
    }

    fn describe(connection: &Connection, _progress: &Progress) -> String {
        let Opened { client, identity, .. } = &connection.opened;
        format!("{}, server {}", client.server(), identity.system_id)
    }

    async fn run(
        &self,
        connection: &mut Connection,
        progress: &mut Progress,
        sink: &dyn Sink,
        control: &Control,
    ) -> Fault {
        if connection.begins && !progress.place.file.is_empty() {
            // Everything up to here is visible.
            sink.advance(progress.passed);
        }
        let first = std::mem::take(&mut connection.first);
        Session::new(&mut connection.opened, &self.config, sink, progress).run(&first, control).await
    }

    fn passed(progress: &Progress) -> Lsn {
        progress.passed
    }

    fn keep_place(progress: &mut Progress) -> bool {
        progress.assembler.forget_open();
        true
    }

    async fn close(&self, _connection: Connection, _progress: Option<&mut Progress>, _fault: &Fault) {}
}
