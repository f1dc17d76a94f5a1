//! Prepared statements of the binary protocol.
//!
//! A client may leave out the types of parameters once it has sent them. What a hit took is not known to the server, so
//! the types are put back into a message that leaves them out and has to pass.

use std::borrow::Cow;
use std::sync::Arc;

use freshet_model::{CatalogVersion, Reason};
use freshet_wire::mysql::capabilities::{Capabilities, Status};
use freshet_wire::mysql::packet::{self, HEADER_BYTES, PACKET_PAYLOAD_MAX};
use freshet_wire::mysql::response::Kind;
use freshet_wire::mysql::statement::{Bound, Execute};

use crate::mysql::session::decide::{Allowed, Execution};
use crate::mysql::session::forward::To;
use crate::mysql::session::idle::Command;
use crate::mysql::session::prepared::{Prepared, PreparedUnder};
use crate::mysql::session::settings::Known;
use crate::mysql::session::temporaries::Reading;
use crate::mysql::session::text::{Decision, Found};
use crate::mysql::session::transaction::Mark;
use crate::mysql::session::{Session, SessionError};
use crate::registry::Statement;

/// Bytes of COM_STMT_EXECUTE before the parameters: command, number, flags, iterations.
const HEAD_BYTES: usize = 10;
/// Flag of COM_STMT_EXECUTE: parameters are counted and named in the message (attributes of the statement among them).
const PARAMETER_COUNT_AVAILABLE: u8 = 0x08;

/// Number of the error that says that no statement has this number.
const UNKNOWN_STATEMENT: u16 = 1243;

/// How the types of the parameters come.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Types<'a> {
    /// There are no parameters.
    None,
    /// In this message.
    Here(Cow<'a, [u8]>),
    /// They are those of an earlier message.
    Earlier,
}

/// A message of a known statement.
struct Message<'a> {
    execute: Execute<'a>,
    types: Types<'a>,
    /// The parameters are counted and named.
    named: bool,
    attributes: bool,
}

impl Session {
    pub(crate) async fn prepare(&mut self, command: Command) -> Result<(), SessionError> {
        let text = self.client.input.bytes().get(HEADER_BYTES + 1..command.header.packet_bytes());
        let text = text.filter(|_| command.whole).map(<[u8]>::to_vec);
        let statement = match &text {
            Some(text) => {
                self.ask_to_read(text, true).await?;
                self.statement(text)
            }
            None => Err(Reason::TooLong),
        };
        self.reading = statement.is_err().then(|| Reading::new(self.settings.quoting(self.status), 1));
        if statement.as_ref().map_or(true, |statement| statement.shape.template.reads_diagnostics()) {
            self.replay_hit(text.as_deref().unwrap_or_default()).await?;
        }
        self.replay.overtaken(false);
        let catalog = self.shared.catalog_version();
        let under = match &self.settings.known {
            Known::Context(context, under) if *under == catalog => PreparedUnder::Context(context.id),
            _ => PreparedUnder::Era(self.settings.era),
        };
        let was = self.status;
        self.send_command(command).await?;
        let unread = self.reading.take().map(|reading| Arc::new(reading.finish()));
        let done = self.answer(Kind::Prepare, To::Client { fill: None, impure: false }).await?;
        match done.prepared {
            Some(made) if done.error.is_none() => {
                let (types, parameters) = (Vec::new(), made.parameters);
                let (server_knows_types, involved) = (false, false);
                self.prepareds.insert(
                    made.statement,
                    Prepared { statement, unread, under, catalog, parameters, types, server_knows_types, involved },
                );
            }
            _ => self.prepareds.forget_last(),
        }
        if done.error.is_some() {
            return Ok(()); // nothing was run
        }
        self.after(&Mark::NOTHING, None, &done, was).await
    }

    pub(crate) async fn execute(&mut self, command: Command) -> Result<(), SessionError> {
        let number = self.number_at_hand().await?;
        let Some(statement) = number.and_then(|number| self.prepareds.get_mut(number)).map(|p| p.statement.clone())
        else {
            self.count_passed(&Reason::UnknownStatement);
            self.replay_hit(&[]).await?;
            // Connectors send an execution right behind its prepare, which may fail.
            let unprepared = self.prepareds.are_all();
            return self.pass_large(command, None, unprepared).await;
        };
        let statement = match statement {
            Ok(statement) if command.whole => statement,
            Ok(statement) => return self.execute_large(command, number.unwrap_or_default(), &statement).await,
            Err(reason) => {
                let prepared = number.and_then(|number| self.prepareds.get_mut(number));
                self.unread = prepared.and_then(|prepared| prepared.unread.clone());
                return self.execute_unknown(command, &reason).await;
            }
        };
        let input = self.client.input.take();
        let packet = input.bytes().get(..command.header.packet_bytes()).unwrap_or_default();
        let decision = self.decide_execute(number.unwrap_or_default(), &statement, packet).await;
        self.client.input = input;
        let catalog = self.shared.catalog_version();
        let decision = decision?;
        let passed = !matches!(decision, Decision::Answered);
        self.carry_out(decision, command, Kind::Execute).await?;
        self.executed(number.filter(|_| passed), catalog);
        Ok(())
    }

    /// The server has run a statement.
    fn executed(&mut self, number: Option<u32>, catalog: CatalogVersion) {
        let cursor = self.status.has(Status::CURSOR_EXISTS);
        if let Some(prepared) = number.and_then(|number| self.prepareds.get_mut(number)) {
            prepared.catalog = catalog;
            // Pieces of parameters are gone with the execution; a cursor may be open.
            prepared.involved = cursor;
        }
    }

    /// Of the statement that a bulk command is about, only what it may do matters.
    pub(crate) async fn bulk_execute(&mut self, command: Command) -> Result<(), SessionError> {
        let number = self.number_at_hand().await?;
        let prepared = number.and_then(|number| self.prepareds.get_mut(number));
        let statement = prepared.and_then(|prepared| {
            // Its types are of another form.
            prepared.server_knows_types = false;
            self.unread.clone_from(&prepared.unread);
            prepared.statement.clone().ok()
        });
        self.pass_large(command, statement.as_ref(), false).await
    }

    async fn execute_unknown(&mut self, command: Command, reason: &Reason) -> Result<(), SessionError> {
        self.count_passed(reason);
        self.replay_hit(&[]).await?;
        self.pass_large(command, None, false).await
    }

    /// A message that is larger than what is looked at.
    async fn execute_large(
        &mut self,
        command: Command,
        number: u32,
        statement: &Arc<Statement>,
    ) -> Result<(), SessionError> {
        self.note_passed(Some(statement), &Reason::TooLong);
        if statement.shape.template.reads_diagnostics() {
            self.replay_hit(statement.text()).await?;
        }
        let Some(prepared) = self.prepareds.get_mut(number) else { return Ok(()) };
        let count = usize::from(prepared.parameters);
        let head = HEADER_BYTES + HEAD_BYTES + count.div_ceil(8) + 1;
        self.client.receive_at_least(head + 2 * count).await?;
        let bytes = self.client.input.bytes();
        let payload = bytes.get(HEADER_BYTES..).unwrap_or_default();
        let Ok(execute) = Execute::parse(payload) else {
            return self.execute_unknown(command, &Reason::MessageShape).await;
        };
        let named = self.about.capabilities.has(Capabilities::QUERY_ATTRIBUTES)
            && execute.flags & PARAMETER_COUNT_AVAILABLE != 0;
        let Some(prepared) = self.prepareds.get_mut(number) else { return Ok(()) };
        match plain_types(execute.tail, prepared.parameters) {
            Types::Here(types) if !named => (prepared.types, prepared.server_knows_types) = (types.into_owned(), true),
            Types::Earlier if !named && !prepared.server_knows_types => {
                let types = prepared.types.clone();
                prepared.server_knows_types = true;
                return self.pass_with_types(command, statement, (head, &types)).await;
            }
            _ => {}
        }
        let catalog = self.shared.catalog_version();
        self.pass_large(command, Some(statement), false).await?;
        self.executed(Some(number), catalog);
        Ok(())
    }

    /// Passes a large message with the types that it leaves out; `put_in`: where they belong, and they.
    async fn pass_with_types(
        &mut self,
        command: Command,
        statement: &Arc<Statement>,
        put_in: (usize, &[u8]),
    ) -> Result<(), SessionError> {
        let (head, types) = put_in;
        let length = command.header.payload_bytes + types.len();
        if command.header.continues() || length >= PACKET_PAYLOAD_MAX {
            return Err(SessionError::TooLarge);
        }
        let mark = self.mark(Some(statement));
        self.before_sending(mark, Some(statement));
        self.replay.overtaken(false);
        let was = self.status;
        self.tune(Some(statement));
        let [a, b, c, ..] = (length as u32).to_le_bytes();
        self.upstream.output.put(&[a, b, c, command.header.sequence]);
        let bytes = self.client.input.bytes().get(HEADER_BYTES..head - 1).unwrap_or_default();
        self.upstream.output.put(bytes);
        self.upstream.output.put(&[1]);
        self.upstream.output.put(types);
        self.client.input.consume(head);
        self.send_bytes(command.header.packet_bytes() - head).await?;
        let done = self.answer(Kind::Execute, To::Client { fill: None, impure: mark.writes }).await?;
        self.after(&mark, Some(statement), &done, was).await
    }

    /// Passes a command of any size that runs this statement. `unprepared`: no statement of its number is known to the server
    /// either.
    async fn pass_large(
        &mut self,
        command: Command,
        statement: Option<&Arc<Statement>>,
        unprepared: bool,
    ) -> Result<(), SessionError> {
        let mark = self.mark(statement);
        self.before_sending(mark, statement);
        self.replay.overtaken(false);
        let was = self.status;
        self.tune(statement);
        self.send_command(command).await?;
        let done = self.answer(Kind::Execute, To::Client { fill: None, impure: mark.writes }).await?;
        let nothing = unprepared && done.error == Some(UNKNOWN_STATEMENT);
        self.after(if nothing { &Mark::NOTHING } else { &mark }, statement, &done, was).await
    }

    async fn decide_execute(
        &mut self,
        number: u32,
        statement: &Arc<Statement>,
        packet: &[u8],
    ) -> Result<Decision, SessionError> {
        let payload = packet.get(HEADER_BYTES..).unwrap_or_default();
        let capabilities = self.about.capabilities;
        let Some(prepared) = self.prepareds.get_mut(number) else {
            return Ok(Decision::Pass(None, Reason::UnknownStatement));
        };
        let message = Message::read(payload, prepared, capabilities);
        let Some(message) = message else {
            // The server says so in its own words, unless it understands more.
            prepared.server_knows_types = true;
            self.replay_hit(&[]).await?;
            return Ok(Decision::Pass(Some(statement.clone()), Reason::MessageShape));
        };
        if let Types::Here(types) = &message.types
            && **types != *prepared.types
        {
            types.as_ref().clone_into(&mut prepared.types);
            prepared.server_knows_types = false;
        }
        // What names its parameters cannot be put together again.
        let unclear = message.named && !prepared.server_knows_types;
        let strange = message.attributes || message.execute.wants_cursor() || prepared.involved || unclear;
        let known = std::mem::take(&mut prepared.types);
        let decision = if strange {
            self.settle(
                statement.clone(),
                Found::Pass(Reason::MessageShape),
                (Execution::Text(b""), None),
                statement.text(),
            )
            .await
        } else {
            self.decide_bound(number, statement, &message, (packet, &known)).await
        };
        let passes = !matches!(decision, Ok(Decision::Answered));
        if let Some(prepared) = self.prepareds.get_mut(number) {
            prepared.types = known;
            if passes && !std::mem::replace(&mut prepared.server_knows_types, true) && message.types == Types::Earlier {
                self.rewritten = with_types_of(packet, prepared.parameters, &prepared.types);
            }
        }
        decision
    }

    /// `sent`: the packet, and the types that hold for it.
    async fn decide_bound(
        &mut self,
        number: u32,
        statement: &Arc<Statement>,
        message: &Message<'_>,
        sent: (&[u8], &[u8]),
    ) -> Result<Decision, SessionError> {
        let (packet, types) = sent;
        let tail = packet.get(HEADER_BYTES + 5..).unwrap_or_default();
        let earlier = if message.types == Types::Earlier { types } else { &[] };
        let execution = Execution::Bound { statement: statement.id, types: earlier, tail };
        let mut asked = false;
        let found = loop {
            // What is never kept need not be looked for.
            if statement.shape.template.refusal().is_some() {
                break Found::Miss { joined: false };
            }
            match self.allowed() {
                Allowed::Pass(reason) => break Found::Pass(reason),
                Allowed::Ask if asked || !self.is_to_ask(statement) => break Found::Pass(Reason::CatalogStale),
                Allowed::Ask => {
                    self.ask_context().await?;
                    asked = true;
                }
                Allowed::Cache(_) if statement.shape.passes_unseen() => {
                    break Found::Pass(Reason::NotWorthwhile);
                }
                Allowed::Cache(context) => {
                    break match self.means_the_same(number, context) {
                        Ok(()) => self.find(context, execution, packet, Kind::Execute).await,
                        Err(reason) => Found::Pass(reason),
                    };
                }
            }
        };
        if matches!(found, Found::Answered) {
            self.remember_bound(number, message, sent);
            return Ok(Decision::Answered);
        }
        let missed = matches!(found, Found::Miss { joined: false });
        // Their values matter to what is kept alone.
        let may_be_kept = matches!(found, Found::Miss { .. }) && statement.shape.template.refusal().is_none();
        let parameters = self.prepareds.get_mut(number).map_or(0, |prepared| prepared.parameters);
        let bind = || message.execute.bind(parameters, self.about.capabilities, Some(types)).ok();
        let nothing = || Bound { types: Vec::new(), has_types: false, values: Vec::new(), has_attributes: false };
        let bound = may_be_kept.then(bind).flatten().unwrap_or_else(nothing);
        let decision = self.settle(statement.clone(), found, (execution, Some(&bound)), statement.text()).await?;
        if missed && decision.joins() && Box::pin(self.is_found_after_all(execution, packet, Kind::Execute)).await {
            self.remember_bound(number, message, sent);
            return Ok(Decision::Answered);
        }
        Ok(decision)
    }

    /// A hit took the place of this execution: what it would have been to a server that knows the types of no earlier one.
    fn remember_bound(&mut self, number: u32, message: &Message<'_>, (packet, types): (&[u8], &[u8])) {
        if let Some(prepared) = self.prepareds.get_mut(number)
            && message.types == Types::Earlier
            && !prepared.server_knows_types
            && let Some(packet) = with_types_of(packet, prepared.parameters, types)
        {
            self.replay.remember(&packet, Kind::Execute);
        }
    }

    /// Whether the statement means under this context what it meant at its prepare, to the client too.
    fn means_the_same(&mut self, number: u32, context: u32) -> Result<(), Reason> {
        let catalog = self.shared.catalog_version();
        let era = self.settings.era;
        let prepared = self.prepareds.get_mut(number).ok_or(Reason::UnknownStatement)?;
        if prepared.catalog != catalog {
            return Err(Reason::CatalogStale); // it passes once, so that the client learns its columns anew
        }
        match prepared.under {
            PreparedUnder::Context(then) if then == context => Ok(()),
            PreparedUnder::Era(then) if then == era => {
                prepared.under = PreparedUnder::Context(context);
                Ok(())
            }
            _ => Err(Reason::SettingsUnknown),
        }
    }
}

impl<'a> Message<'a> {
    /// None if it is not understood.
    fn read(payload: &'a [u8], prepared: &Prepared, capabilities: Capabilities) -> Option<Self> {
        let execute = Execute::parse(payload).ok()?;
        let named = capabilities.has(Capabilities::QUERY_ATTRIBUTES) && execute.flags & PARAMETER_COUNT_AVAILABLE != 0;
        if !named {
            let types = plain_types(execute.tail, prepared.parameters);
            return Some(Self { execute, types, named, attributes: false });
        }
        let bound = execute.bind(prepared.parameters, capabilities, Some(&prepared.types)).ok()?;
        let types = match (bound.values.is_empty(), bound.has_types) {
            (true, _) => Types::None,
            (false, true) => Types::Here(bound.types.into()),
            (false, false) => Types::Earlier,
        };
        let named = types != Types::None;
        Some(Self { execute, types, named, attributes: bound.has_attributes })
    }
}

/// How the types come in a message that neither counts nor names its parameters.
fn plain_types(tail: &[u8], parameters: u16) -> Types<'_> {
    let count = usize::from(parameters);
    if count == 0 {
        return Types::None;
    }
    let at = count.div_ceil(8);
    match (tail.get(at), tail.get(at + 1..at + 1 + 2 * count)) {
        (Some(0), _) => Types::Earlier,
        (_, Some(types)) => Types::Here(types.into()),
        _ => Types::None, // too short: the server will complain
    }
}

/// The packet with the types that it leaves out.
fn with_types_of(packet: &[u8], parameters: u16, types: &[u8]) -> Option<Vec<u8>> {
    let at = HEADER_BYTES + HEAD_BYTES + usize::from(parameters).div_ceil(8);
    let (head, rest) = packet.split_at_checked(at)?;
    let payload = [head.get(HEADER_BYTES..)?, &[1], types, rest.get(1..)?].concat();
    let mut out = Vec::with_capacity(payload.len() + HEADER_BYTES);
    packet::put(&mut out, &mut 0, &payload);
    Some(out)
}
