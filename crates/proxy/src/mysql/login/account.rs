//! What Freshet needs to log in again for a client: sessions that share connections have others than that of their own login.

use std::sync::Arc;
use std::time::Duration;

use freshet_net::mysql::open_at;
use freshet_wire::mysql::capabilities::Capabilities;
use freshet_wire::mysql::command;
use freshet_wire::mysql::handshake::{ClientHello, HandshakeResponse};
use tokio::time::timeout;

use crate::mysql::MySql;
use crate::mysql::kills::{Kill, Thread};
use crate::mysql::login::{LOGIN_TIMEOUT, Leg, Refusal, SERVER_SHUTDOWN, not_offered, open_settled, own};
use crate::peer::Peer;
use crate::pool::PoolKey;

/// A client's login, which ended at Freshet.
#[derive(Debug)]
pub(crate) struct Account {
    /// Whose connections it may have.
    pub(crate) key: Arc<PoolKey>,
    pub(crate) user: String,
    /// The client's response to the handshake.
    response: Vec<u8>,
    /// The capabilities that the client and the server agreed on.
    agreed: Capabilities,
    character_set: u8,
    /// The number that the client knows of the session.
    pub(crate) number: u32,
}

impl Account {
    /// `response`: the client's, which was understood.
    pub(super) fn new(response: &[u8], hello: &HandshakeResponse<'_>, agreed: Capabilities, number: u32) -> Self {
        let user = String::from_utf8_lossy(hello.user).into_owned();
        Self {
            // A server of MySQL or MariaDB is one entry: its sessions choose among all its databases.
            key: Arc::new(PoolKey { database: String::new(), user: user.clone() }),
            user,
            response: response.to_vec(),
            agreed,
            character_set: hello.character_set,
            number,
        }
    }

    /// Appends what makes logins of the user differ in their sessions.
    pub(crate) fn shape(&self) -> Vec<u8> {
        let mut key = self.agreed.0.to_le_bytes().to_vec();
        key.push(self.character_set);
        key
    }

    /// Logs in on a new connection, with this default database. Returns the server's number of it, too. `most`: the longest that it may take, if that is
    /// less than usual.
    pub(crate) async fn log_in_again(
        &self,
        database: Option<&str>,
        shared: &Arc<MySql>,
        most: Option<Duration>,
    ) -> Result<(Peer, Thread), Refusal> {
        self.log_in_at(None, database, shared, most).await
    }

    /// The same at this host; None: the one in use.
    async fn log_in_at(
        &self,
        host: Option<usize>,
        database: Option<&str>,
        shared: &Arc<MySql>,
        most: Option<Duration>,
    ) -> Result<(Peer, Thread), Refusal> {
        let limit = most.map_or(LOGIN_TIMEOUT, |most| most.min(LOGIN_TIMEOUT));
        let absent = |text: &str| Err(Refusal::Absent(text.to_owned()));
        match timeout(limit, self.log_in(host, database, shared)).await {
            // There is no client: the server has ended the connection.
            Ok(Err(Refusal::Gone)) => absent("Freshet cannot reach the database"),
            Ok(done) => done,
            Err(_) => absent("The database does not answer a login in time"),
        }
    }

    /// Sends a KILL of one of the server's numbers, on a connection of its own; returns the payload of the answer.
    pub(crate) async fn kill(&self, kill: Kill, thread: Thread, shared: &Arc<MySql>) -> Result<Vec<u8>, Refusal> {
        let (mut peer, _) = self.log_in_at(Some(thread.host), None, shared, None).await?;
        let mut leg = Leg { peer: &mut peer, sequence: 0 };
        let mut payload = vec![command::QUERY];
        if self.agreed.has(Capabilities::QUERY_ATTRIBUTES) {
            payload.extend_from_slice(&[0, 1]);
        }
        let what = if kill.query { "QUERY" } else { "CONNECTION" };
        payload.extend_from_slice(format!("KILL {what} {}", thread.number).as_bytes());
        leg.put(&payload);
        let answer = timeout(LOGIN_TIMEOUT, leg.receive()).await.map_err(|_| Refusal::Gone)??;
        (leg.sequence, payload) = (0, vec![command::QUIT]);
        leg.put(&payload);
        leg.peer.flush().await?;
        Ok(answer)
    }

    async fn log_in(
        &self,
        host: Option<usize>,
        database: Option<&str>,
        shared: &Arc<MySql>,
    ) -> Result<(Peer, Thread), Refusal> {
        let upstream = &shared.own.upstream;
        let opened = match host {
            Some(host) => open_at(upstream, host).await,
            None => open_settled(upstream).await,
        };
        let opened = opened.map_err(|error| Refusal::of_upstream(&error, shared))?;
        let theirs = opened.parse().map_err(|error| Refusal::of_upstream(&error, shared))?;
        let Ok(ClientHello::Response(hello)) = ClientHello::parse(&self.response) else {
            return Err(Refusal::internal("a response that was understood before"));
        };
        let offered = hello.capabilities.without(not_offered(shared)).without(Capabilities::SSL);
        if offered & theirs.capabilities != self.agreed {
            return Err(Refusal::Say(
                SERVER_SHUTDOWN,
                "08S01",
                "The database is another one than at the login".to_owned(),
            ));
        }
        let with = |capabilities: Capabilities| match database {
            Some(_) => capabilities.with(Capabilities::CONNECT_WITH_DB),
            None => capabilities.without(Capabilities::CONNECT_WITH_DB),
        };
        let hello = HandshakeResponse {
            database: database.map(str::as_bytes),
            capabilities: with(hello.capabilities),
            ..hello
        };
        let users = shared.access.users.as_ref();
        let Some(password) = users.and_then(|users| users.get(&self.user)) else {
            // Its line in the users file is gone.
            return Err(Refusal::Say(1045, "28000", format!("Access denied for user '{}'", self.user)));
        };
        let thread = Thread { host: opened.host, number: theirs.connection_id };
        Ok((own::enter(opened, &hello, &password, shared).await?.0, thread))
    }
}
