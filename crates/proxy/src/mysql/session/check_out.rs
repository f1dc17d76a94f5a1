//! A session in transaction mode takes a server connection: an idle one of its group, or a new one that is brought into the state of the session.

use std::pin::Pin;
use std::task::{Context, Poll};

use freshet_wire::mysql::command;
use freshet_wire::mysql::error::put_error;
use freshet_wire::mysql::packet;
use freshet_wire::mysql::response::Kind;

use crate::mysql::login::{Leg, Refusal};
use crate::mysql::session::connection::ServerConnection;
use crate::mysql::session::counted::Counted;
use crate::mysql::session::forward::To;
use crate::mysql::session::idle::KILLED;
use crate::mysql::session::known::Known;
use crate::mysql::session::{Session, SessionError};
use crate::peer::Peer;
use crate::pool::{Lease, Patience, WaitTimeout};
use crate::server::sessions::Link;

impl Session {
    /// Makes sure that the session has a connection. If there is none for it, the client is told, and the session ends.
    pub(crate) async fn connect(&mut self) -> Result<(), SessionError> {
        if self.server.is_connected() { Ok(()) } else { Box::pin(self.check_out()).await }
    }

    async fn check_out(&mut self) -> Result<(), SessionError> {
        let patience = Patience::of(self.shared.settings.pool.failover_timeout);
        let mut lease = self.lease().await?;
        let mut found = lease.take();
        if let Some(connection) = &mut found
            && (connection.leads_elsewhere(&self.shared) || !connection.revive())
        {
            found = None;
        }
        let is_new = found.is_none();
        let connection = match found {
            Some(connection) => connection,
            None => self.open(&mut lease, patience).await?,
        };
        self.take_over(connection, lease);
        if is_new {
            self.begin_to_count();
            self.make_settings().await?;
        }
        self.carry_variables();
        self.carry_insert_id();
        Ok(())
    }

    /// The right to have a connection.
    async fn lease(&mut self) -> Result<Lease<ServerConnection>, SessionError> {
        let Some(pooling) = &self.server.pooling else { return Err(SessionError::UpstreamEnded) };
        let (pools, key, group) = (self.shared.pools.clone(), pooling.account.key.clone(), pooling.group.clone());
        let link = self.server.link.clone();
        let leased = beside_client(&mut self.client, &link, Box::pin(pools.check_out(&key, &group))).await?;
        leased.map_err(|WaitTimeout| {
            // ER_CON_COUNT_ERROR
            let text = "Too many connections: none to the database became free in time (query_wait_timeout)";
            put_error(self.client.output.buffer(), &mut 1, 1040, Some("08004"), text);
            SessionError::NoConnection
        })
    }

    /// A new connection for the lease. While no server takes any, tries again: nothing of the session has been sent.
    async fn open(
        &mut self,
        lease: &mut Lease<ServerConnection>,
        mut patience: Patience,
    ) -> Result<ServerConnection, SessionError> {
        let Some(pooling) = &self.server.pooling else { return Err(SessionError::UpstreamEnded) };
        let (shared, link) = (self.shared.clone(), self.server.link.clone());
        let limit = shared.settings.pool.failover_timeout;
        let mut most = None;
        loop {
            lease.renew();
            let opening = Box::pin(pooling.account.log_in_again(pooling.database.as_deref(), &shared, most));
            let refusal = match beside_client(&mut self.client, &link, opening).await? {
                Ok((peer, thread)) => {
                    let connection = ServerConnection::new(peer, thread);
                    if connection.is_in_use(&shared) {
                        return Ok(connection);
                    }
                    Refusal::Absent("The primary has changed during the login".to_owned())
                }
                Err(refusal) => refusal,
            };
            if refusal.is_absence() {
                if link.is_paused() && !shared.switches.is_draining() {
                    link.set_parked(true);
                    let resumed = |_: &mut Context<'_>| if link.is_paused() { Poll::Pending } else { Poll::Ready(()) };
                    beside_client(&mut self.client, &link, Box::pin(std::future::poll_fn(resumed))).await?;
                    patience = Patience::of(limit);
                }
                most = beside_client(&mut self.client, &link, Box::pin(patience.next())).await?;
                if most.is_some() {
                    let upstream = &shared.own.upstream;
                    shared
                        .warn_rarely(|| format!("{upstream} takes no connections: sessions wait for up to {limit:?}"));
                    continue;
                }
            }
            refusal.put(&mut Leg { peer: &mut self.client, sequence: 1 });
            return Err(SessionError::NoConnection);
        }
    }

    fn take_over(&mut self, connection: ServerConnection, lease: Lease<ServerConnection>) {
        let thread = connection.thread;
        self.server.connection = Some(connection);
        let Some(ServerConnection { facts, .. }) = &mut self.server.connection else { return };
        let settings = &mut self.server.settings;
        settings.server = facts.server.take();
        settings.compared = facts.compared.take();
        settings.temporaries.count_on(std::mem::take(&mut facts.counted));
        let same = match &settings.known {
            Known::Context(context, _) => facts.settings == Some(context.settings),
            Known::Nothing | Known::Unknowable(_) => false,
        };
        self.track.set_stale(facts.stale);
        if !same {
            settings.begin_on_another_connection();
        }
        if let Some(pooling) = &mut self.server.pooling {
            pooling.target.has(thread);
            pooling.lease = Some(lease);
        }
    }

    fn begin_to_count(&mut self) {
        let counted = Counted::from(self.server.consumed());
        self.server.settings.temporaries.count_on(counted);
    }

    /// Brings a new connection into the state of the session.
    async fn make_settings(&mut self) -> Result<(), SessionError> {
        let Some(pooling) = &self.server.pooling else { return Ok(()) };
        let label = pooling.carried.label.clone();
        if label.was_reset() {
            if let Some(out) = self.server.output() {
                packet::put(out, &mut 0, &[command::RESET_CONNECTION]);
            }
            self.make_setting().await?;
            self.begin_to_count();
        }
        for text in label.texts() {
            self.server.put_query(text);
            self.make_setting().await?;
        }
        Ok(())
    }

    async fn make_setting(&mut self) -> Result<(), SessionError> {
        let mut answer = Vec::new();
        let done = self.follow(Kind::Status, To::Own(&mut answer)).await?;
        if done.error.is_none() {
            return Ok(());
        }
        self.client.output.put(&answer);
        Err(SessionError::NoConnection)
    }

    /// The connection is to have the values of the session's user variables.
    fn carry_variables(&mut self) {
        let (Some(pooling), Some(connection)) = (&mut self.server.pooling, &self.server.connection) else { return };
        if connection.facts.variables == pooling.carried.variables {
            return;
        }
        let variables = pooling.carried.variables.clone();
        pooling.sent_ahead += variables.texts().count();
        variables.texts().for_each(|text| self.server.put_query(text));
    }

    /// The connection is to have the session's LAST_INSERT_ID().
    fn carry_insert_id(&mut self) {
        let there = self.server.connection.as_ref().map(|connection| connection.facts.insert_id);
        let Some(pooling) = &mut self.server.pooling else { return };
        let Some(own) = pooling.insert_id.filter(|own| there != Some(*own)) else { return };
        pooling.sent_ahead += 1;
        self.server.put_query(format!("SET @@last_insert_id = {own}").as_bytes());
    }

    /// Takes the answers to the statements that were sent ahead of the next command, if they are due.
    pub(super) async fn settle_sent_ahead(&mut self) -> Result<(), SessionError> {
        let due = self.server.pooling.as_mut().map_or(0, |pooling| std::mem::take(&mut pooling.sent_ahead));
        for _ in 0..due {
            let first = std::mem::replace(&mut self.server.answer_from, 1);
            let done = self.follow(Kind::Status, To::Nobody).await?;
            self.server.answer_from = first;
            if done.error.is_some() {
                return Err(SessionError::OwnAnswer);
            }
        }
        Ok(())
    }
}

/// Does this work, and meanwhile sends the client what it is still to receive: an error if the client leaves, or the session is killed.
async fn beside_client<T>(
    client: &mut Peer,
    link: &Link,
    mut work: Pin<Box<impl Future<Output = T>>>,
) -> Result<T, SessionError> {
    let was_there = !client.ended;
    let done = std::future::poll_fn(|cx| {
        if link.is_killed() {
            return Poll::Ready(Ok(None));
        }
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Ok(Some(done)));
        }
        if client.has_output()
            && let Poll::Ready(Err(error)) = client.poll_send(cx)
        {
            return Poll::Ready(Err(SessionError::Io(error)));
        }
        match client.poll_receive(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(SessionError::Io(error))),
            Poll::Ready(Ok(())) if was_there && client.ended => Poll::Ready(Err(SessionError::ClientEnded)),
            Poll::Ready(Ok(())) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    })
    .await?;
    done.ok_or_else(|| {
        let (code, state, text) = KILLED;
        put_error(client.output.buffer(), &mut 1, code, Some(state), text);
        SessionError::NoConnection
    })
}
