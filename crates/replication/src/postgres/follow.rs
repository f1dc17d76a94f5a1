//! The follower of a slot: see [`crate::follow`].

use std::fmt::Display;
use std::sync::Arc;

use freshet_net::postgres::Client;
use freshet_types::Lsn;
use tracing::warn;

use crate::error::Fault;
use crate::follow::{self, Family};
use crate::postgres::assemble::Assembler;
use crate::postgres::progress::Progress;
use crate::postgres::session::Session;
use crate::postgres::setup::{self, Opened};
use crate::postgres::slot::{Keeper, Slot};
use crate::{Control, FollowerConfig, Identity, Sink};

/// Follows the upstream until [`Control::shutdown`]. After a fault it continues the epoch if it has a lasting slot and only the connection was lost.
/// Otherwise it begins a new epoch with a new stream.
pub async fn follow(config: FollowerConfig, sink: Arc<dyn Sink>, control: Arc<Control>) {
    follow::follow(Postgres { config }, sink, control).await;
}

struct Postgres {
    config: FollowerConfig,
}

/// A walsender, and the keeper of its slot.
struct Connection {
    client: Client,
    keeper: Keeper,
}

impl Family for Postgres {
    type Connection = Connection;
    type Progress = Progress;

    fn upstream(&self) -> &impl Display {
        &self.config.upstream
    }

    async fn open(&self, progress: Option<&Progress>) -> Result<Connection, Fault> {
        let slot = progress.map_or_else(|| Slot::new(&self.config.slot), |progress| progress.slot.clone());
        let Opened { client, identity, walsender } = setup::open(&self.config, &slot).await?;
        Ok(Connection { client, keeper: Keeper::new(&self.config, slot, identity, walsender) })
    }

    fn identity(connection: &Connection) -> &Identity {
        connection.keeper.identity()
    }

    async fn start(&self, connection: &mut Connection, _told: &(dyn Fn(&str) + Sync)) -> Result<Progress, Fault> {
        let Connection { client, keeper } = connection;
        let (slot, version_num) = (keeper.slot().clone(), keeper.identity().server_version_num);
        let passed = tokio::select! {
            biased;
            fault = keeper.watch(|_| ()) => return Err(fault),
            start = setup::start(client, &self.config, &slot, version_num) => start?,
        };
        Ok(Progress { slot, walsender: String::new(), passed, assembler: Assembler::default() })
    }

    async fn resume(&self, connection: &mut Connection, progress: &Progress) -> Result<(), Fault> {
        let Connection { client, keeper } = connection;
        let resumed = setup::resume(client, &self.config, keeper, progress.passed).await;
        if matches!(resumed, Err(Fault::SlotBusy))
            && let Err(error) = progress.slot.end_walsender(client, &progress.walsender).await
        {
            warn!("process {} holds the slot and cannot be ended: {error}", progress.walsender);
        }
        resumed
    }

    fn describe(connection: &Connection, progress: &Progress) -> String {
        let Identity { server_version_num, system_id, timeline, .. } = connection.keeper.identity();
        format!("PostgreSQL {server_version_num}, system {system_id}, timeline {timeline}, at {}", progress.passed)
    }

    async fn run(
        &self,
        connection: &mut Connection,
        progress: &mut Progress,
        sink: &dyn Sink,
        control: &Control,
    ) -> Fault {
        let Connection { client, keeper } = connection;
        let mut session = Session::new(client, sink, progress, self.config.silence_max);
        tokio::select! {
            biased;
            fault = keeper.watch(|bytes| sink.retained(bytes)) => fault,
            fault = session.run(control) => fault,
        }
    }

    fn passed(progress: &Progress) -> Lsn {
        progress.passed
    }

    fn keep_place(progress: &mut Progress) -> bool {
        progress.assembler.forget_open();
        progress.slot.lasting
    }

    async fn close(&self, connection: Connection, progress: Option<&mut Progress>, fault: &Fault) {
        let Connection { client, mut keeper } = connection;
        drop(client);
        match progress {
            Some(progress) => keeper.walsender().clone_into(&mut progress.walsender),
            // The slot may belong to another process.
            None if fault.is_setup() => {}
            None => keeper.drop_slot().await,
        }
    }
}
