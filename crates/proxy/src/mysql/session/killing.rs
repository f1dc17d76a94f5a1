//! A session in transaction mode sends KILL: see [`crate::mysql::kills`].

use freshet_wire::mysql::error::put_error;
use freshet_wire::mysql::ok::{OK_MARK, Ok as OkPacket};

use crate::mysql::kills::Kill;
use crate::mysql::login::Leg;
use crate::mysql::session::{Session, SessionError};

impl Session {
    /// Carries out a KILL of a session that shares connections; false: it is for the server.
    pub(super) async fn kill(&mut self, kill: Kill) -> Result<bool, SessionError> {
        let Some(pooling) = &self.server.pooling else { return Ok(false) };
        let shared = self.shared.clone();
        let Some(target) = shared.kills.get(kill.number) else { return Ok(false) };
        let Some(aim) = target.aim() else {
            if target.user != pooling.account.user {
                // ER_KILL_DENIED_ERROR
                let text = format!("You are not owner of thread {}", kill.number);
                put_error(self.client.output.buffer(), &mut 1, 1095, Some("HY000"), &text);
                return Ok(true);
            }
            if !kill.query {
                shared.sessions.kill(target.link.id);
            }
            let ok = OkPacket { status: self.status, ..OkPacket::default() };
            let capabilities = self.capabilities();
            ok.put(self.client.output.buffer(), &mut 1, OK_MARK, capabilities);
            return Ok(true);
        };
        let mut answer = Leg { peer: &mut self.client, sequence: 1 };
        match pooling.account.kill(kill, aim.thread, &shared).await {
            Ok(payload) => answer.put(&payload),
            Err(refusal) => refusal.put(&mut answer),
        }
        Ok(true)
    }

    /// The session ends.
    pub(super) fn leave_pool(&self) {
        if let Some(pooling) = &self.server.pooling {
            self.shared.kills.end(&pooling.target);
        }
    }
}
