//! One stream from its start to its fault.
//!
//! The session only receives: it confirms nothing and requests nothing. Positions arrive promptly, since every event has one and the server sends the
//! whole log. If MySQL skips known transactions, a heartbeat has its position.
//!
//! Positions within a group do not show what was delivered, so they are ignored until the group is complete.

use std::time::Duration;

use freshet_net::mysql::Client;
use freshet_types::Lsn;
use freshet_wire::mysql::binlog::{Checksum, Event, Header, Packet};
use freshet_wire::mysql::track::mariadb_source;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::error::Fault;
use crate::mysql::assemble::Finished;
use crate::mysql::position::Place;
use crate::mysql::progress::Progress;
use crate::mysql::setup::Opened;
use crate::mysql::{FollowerConfig, xa};
use crate::{Control, Sink};

/// Interval of checks of the last packet's time.
const TICK: Duration = Duration::from_secs(1);
/// Limit of packets processed before requests are checked.
const BATCH_MAX: usize = 256;

/// A running stream.
pub(super) struct Session<'a> {
    client: &'a mut Client,
    sink: &'a dyn Sink,
    progress: &'a mut Progress,
    /// End of the last event; None before the first rotation.
    at: Option<Place>,
    checksum: Checksum,
    heard_at: Instant,
    silence_max: Duration,
    /// The GTID of the open group.
    gtid: Option<(u128, u64)>,
    /// MariaDB: detects when commits of prepared transactions are visible.
    prepared: Option<xa::Watch>,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        opened: &'a mut Opened,
        config: &FollowerConfig,
        sink: &'a dyn Sink,
        progress: &'a mut Progress,
    ) -> Self {
        let (checksum, heard_at) = (Checksum::Unknown, Instant::now());
        let Opened { client, identity, .. } = opened;
        let silence_max = config.silence_max;
        let watch = || xa::Watch::new(config.upstream.clone(), identity.clone(), silence_max);
        let prepared = client.server().is_mariadb.then(watch);
        Self { client, sink, progress, at: None, checksum, heard_at, silence_max, gtid: None, prepared }
    }

    /// Processes a first packet, then runs until a fault.
    pub(super) async fn run(&mut self, first: &[u8], control: &Control) -> Fault {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if let Err(fault) = self.take(first).await {
            return fault;
        }
        loop {
            let done = tokio::select! {
                biased;
                // Positions arrive without a request.
                () = control.keepalive_requested() => Ok(()),
                _ = tick.tick() => self.tick(),
                packet = self.client.receive_packet() => match packet {
                    Ok(packet) => self.drain(&packet).await,
                    Err(error) => Err(error.into()),
                },
            };
            if let Err(fault) = done {
                return fault;
            }
        }
    }

    fn tick(&self) -> Result<(), Fault> {
        let silence = self.heard_at.elapsed();
        if silence > self.silence_max { Err(Fault::Silent(silence)) } else { Ok(()) }
    }

    /// Processes the packets that have arrived.
    async fn drain(&mut self, first: &[u8]) -> Result<(), Fault> {
        self.heard_at = Instant::now();
        self.take(first).await?;
        for _ in 0..BATCH_MAX {
            if !self.client.has_packet_buffered() {
                break;
            }
            let packet = self.client.receive_packet().await?;
            self.take(&packet).await?;
        }
        Ok(())
    }

    async fn take(&mut self, packet: &[u8]) -> Result<(), Fault> {
        let Packet::Event(bytes) = Packet::decode(packet)? else { return Err(Fault::Ended) };
        let (header, event) = Event::decode(bytes, self.checksum)?;
        if let Event::Format { checksum, .. } = event {
            self.checksum = checksum;
        }
        let end = self.reach(header, &event)?;
        if let Event::MariadbGtid(gtid) = &event {
            self.gtid = Some((mariadb_source(gtid.domain, header.server), gtid.sequence));
        }
        let next = match &event {
            Event::Rotate { offset, file } => Some(Place::new(file, *offset).ok_or(Fault::Answer("a file's name"))?),
            _ => None,
        };
        let finished = self.progress.assembler.take(event, end)?;
        if let Some(finished) = finished {
            let gtid = finished.gtid.or(self.gtid.take());
            self.finish(finished).await?;
            if let Some(gtid) = gtid {
                self.sink.group(gtid, end);
            }
        }
        self.advance(end);
        if let Some(next) = next {
            self.advance(next.lsn().ok_or(Fault::Answer("a position"))?);
            self.at = Some(next);
        }
        Ok(())
    }

    /// The end of an event; for an event that is in no file, the end of the one before.
    fn reach(&mut self, header: Header, event: &Event<'_>) -> Result<Lsn, Fault> {
        let Some(at) = &mut self.at else {
            // The server's first event names the file.
            let first = matches!(event, Event::Rotate { .. });
            return if first { Ok(Lsn::default()) } else { Err(Fault::OutOfOrder("an event before its file")) };
        };
        match event {
            Event::Heartbeat { offset: Some(offset) } => at.offset = at.offset.max(*offset),
            Event::Heartbeat { offset: None } => {
                // A step back has no new position.
                let _ = at.reach(header.end);
            }
            _ if header.is_artificial() || header.end == 0 => {}
            _ if at.reach(header.end) => {}
            _ => return Err(Fault::OutOfOrder("an event before the previous one")),
        }
        at.lsn().ok_or(Fault::Answer("a position"))
    }

    /// Passes a group to the sink. Positions must be right: if a commit were at or before a passed position, the sink would have been told of a
    /// delivery that had not happened.
    async fn finish(&mut self, mut finished: Finished) -> Result<(), Fault> {
        if let (Some(watch), Some(xid), Some(commit)) = (&mut self.prepared, &finished.xid, &mut finished.commit) {
            commit.id = watch.visible(xid).await?;
        }
        if let Some((source, number)) = finished.gtid {
            self.progress.executed.add(source, number);
        }
        if let Some(commit) = finished.commit {
            if commit.end <= self.progress.passed {
                return Err(Fault::OutOfOrder("a commit before a position that had passed"));
            }
            self.sink.commit(commit);
        }
        Ok(())
    }

    fn advance(&mut self, end: Lsn) {
        if self.progress.assembler.in_group() || end <= self.progress.passed {
            return;
        }
        self.progress.passed = end;
        if let Some(at) = &self.at {
            self.progress.place.clone_from(at);
        }
        self.sink.advance(end);
    }
}
