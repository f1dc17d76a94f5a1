//! Prepared statements of the binary protocol.
//!
//! A client may leave out the types of parameters once it has sent them. The server does not know types that were sent with a hit, so they are added
//! to a later message that lacks them and has to pass. If that would change the number of its packets, or is impossible, the server receives the
//! types before it. If no earlier message had types, the server refuses the message, so it passes unchanged.

use std::borrow::Cow;
use std::sync::Arc;

use freshet_types::{CatalogVersion, Reason};
use freshet_wire::mysql::capabilities::Capabilities;
use freshet_wire::mysql::command as code;
use freshet_wire::mysql::integers::put_lenenc;
use freshet_wire::mysql::packet::{self, HEADER_BYTES, PACKET_PAYLOAD_MAX};
use freshet_wire::mysql::response::{Answer, EXECUTE_FLAGS, Kind};
use freshet_wire::mysql::statement::{Bound, Execute};

use crate::mysql::session::execution::{Execution, Joined};
use crate::mysql::session::forward::To;
use crate::mysql::session::idle::Command;
use crate::mysql::session::known::{Allowed, Known};
use crate::mysql::session::mark::Mark;
use crate::mysql::session::prepared::{Prepared, PreparedUnder};
use crate::mysql::session::text::Decided;
use crate::mysql::session::{Outcome, Session, SessionError};
use crate::session::lookup::Decision;
use crate::statement::registry::Statement;

/// Bytes of COM_STMT_EXECUTE before the parameters: command, number, flags, iterations.
const HEAD_BYTES: usize = 10;
/// Flag of COM_STMT_EXECUTE: the message has the number and the names of the parameters, query attributes among them.
const PARAMETER_COUNT_AVAILABLE: u8 = 0x08;

/// Code of the error that no statement has this number.
const UNKNOWN_STATEMENT: u16 = 1243;

/// Where the types of the parameters are.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Types<'a> {
    /// There are no parameters.
    None,
    /// In this message.
    Here(Cow<'a, [u8]>),
    /// In an earlier message.
    Earlier,
}

/// A message of a known statement.
struct Message<'a> {
    execute: Execute<'a>,
    types: Types<'a>,
    /// The message has the number and the names of the parameters.
    named: bool,
    attributes: bool,
}

impl Session {
    pub(crate) async fn execute(&mut self, command: Command) -> Result<(), SessionError> {
        let number = self.number_at_hand(&command).await?;
        let Some(statement) =
            number.and_then(|number| self.server.prepareds.get_mut(number)).map(|p| p.statement.clone())
        else {
            self.note_passed(None, &Reason::UnknownStatement);
            self.replay_hit(&[]).await?;
            // Connectors send an execution directly after its prepare, which may fail.
            let unprepared = self.server.prepareds.are_all();
            return self.pass_large(command, None, unprepared).await;
        };
        let statement = match statement {
            Ok(statement) if command.whole => statement,
            Ok(statement) => return self.execute_large(command, number.unwrap_or_default(), &statement).await,
            Err(reason) => {
                let prepared = number.and_then(|number| self.server.prepareds.get_mut(number));
                self.at_hand.unread = prepared.and_then(|prepared| prepared.unread.clone());
                return self.execute_unknown(command, &reason).await;
            }
        };
        let input = self.client.input.take();
        let packet = input.bytes().get(..command.header.packet_bytes()).unwrap_or_default();
        let kind = kind_of(packet);
        let decision = self.decide_execute(number.unwrap_or_default(), &statement, packet).await;
        self.client.input = input;
        let catalog = self.shared.catalog_version();
        let decision = decision?;
        let passed = !matches!(decision.decision, Decision::Hit(()));
        self.carry_out(decision, command, kind).await?;
        self.executed(number.filter(|_| passed), catalog);
        Ok(())
    }

    /// The server has executed a statement.
    fn executed(&mut self, number: Option<u32>, catalog: CatalogVersion) {
        let outcome = self.answer.outcome;
        if let Some(prepared) = number.and_then(|number| self.server.prepareds.get_mut(number)) {
            prepared.catalog = catalog;
            prepared.involved = match outcome {
                Outcome::Cursor => true,
                // A piece of a parameter that does not exist, or is too long, makes all executions fail until it is reset.
                Outcome::Failed => prepared.involved,
                // Pieces of parameters are dropped with the execution.
                Outcome::Plain => false,
            };
        }
    }

    /// Only the possible effects of a bulk command's statement matter.
    pub(crate) async fn bulk_execute(&mut self, command: Command) -> Result<(), SessionError> {
        let number = self.number_at_hand(&command).await?;
        let prepared = number.and_then(|number| self.server.prepareds.get_mut(number));
        let statement = prepared.and_then(|prepared| {
            // From now on the server knows the types in this command, which has another form.
            (prepared.types, prepared.server_knows_types) = (None, true);
            self.at_hand.unread.clone_from(&prepared.unread);
            prepared.statement.clone().ok()
        });
        let refusal = statement.as_ref().and_then(|statement| statement.query.template.refusal());
        self.last.passes(statement.as_ref(), refusal.unwrap_or(&Reason::MessageShape));
        self.pass_large(command, statement.as_ref(), false).await
    }

    async fn execute_unknown(&mut self, command: Command, reason: &Reason) -> Result<(), SessionError> {
        self.note_passed(None, reason);
        self.replay_hit(&[]).await?;
        self.pass_large(command, None, false).await
    }

    /// A message that is larger than the limit for parsing.
    async fn execute_large(
        &mut self,
        command: Command,
        number: u32,
        statement: &Arc<Statement>,
    ) -> Result<(), SessionError> {
        self.note_passed(Some(statement), &Reason::TooLong);
        if statement.query.template.reads_diagnostics() {
            self.replay_hit(statement.text()).await?;
        }
        let Some(prepared) = self.server.prepareds.get_mut(number) else { return Ok(()) };
        let count = usize::from(prepared.parameters);
        let head = HEADER_BYTES + HEAD_BYTES + count.div_ceil(8) + 1;
        let packet = command.header.packet_bytes();
        self.client.receive_at_least(packet.min(head + 2 * count)).await?;
        let bytes = self.client.input.bytes();
        let payload = bytes.get(..packet).unwrap_or(bytes).get(HEADER_BYTES..).unwrap_or_default();
        let Ok(execute) = Execute::parse(payload) else {
            return self.execute_unknown(command, &Reason::MessageShape).await;
        };
        let named = self.server.about.capabilities.has(Capabilities::QUERY_ATTRIBUTES)
            && execute.flags & PARAMETER_COUNT_AVAILABLE != 0;
        let Some(prepared) = self.server.prepareds.get_mut(number) else { return Ok(()) };
        let lacking = match plain_types(execute.tail, prepared.parameters) {
            Types::Here(types) if !named => {
                prepared.types = Some(types[..].into());
                None
            }
            Types::None if !named => None,
            // The types in a message that names its parameters are not parsed.
            _ if named => prepared.types.take(),
            _ => prepared.types.clone(),
        };
        let lacking = lacking.filter(|_| !prepared.server_knows_types);
        prepared.server_knows_types = true;
        if let Some(types) = lacking {
            self.tell_types(number, &types, named).await?;
        }
        let catalog = self.shared.catalog_version();
        self.pass_large(command, Some(statement), false).await?;
        self.executed(Some(number), catalog);
        Ok(())
    }

    /// Sends the types of the parameters to the server, which does not know them since a hit took the message: by an execution of Freshet's own, in
    /// which all parameters are NULL. A statement that has had a hit only reads.
    async fn tell_types(&mut self, number: u32, types: &[u8], named: bool) -> Result<(), SessionError> {
        self.before_sending(Mark { reads: true, ..Mark::NOTHING }, None);
        self.server.answer_from = 1;
        let by_name = self.server.about.capabilities.has(Capabilities::QUERY_ATTRIBUTES);
        if let Some(out) = self.server.output() {
            put_nulls(out, number, types, (named, by_name));
        }
        self.answer(Kind::Execute, To::Nobody).await?;
        Ok(())
    }

    /// Passes a command of any size that executes this statement. `unprepared`: the server does not know a statement with its number either.
    async fn pass_large(
        &mut self,
        command: Command,
        statement: Option<&Arc<Statement>>,
        unprepared: bool,
    ) -> Result<(), SessionError> {
        let mark = self.mark(statement);
        self.before_sending(mark, statement);
        self.replay.overtaken(false);
        self.replay.lose_count();
        let was = self.status;
        self.tune(statement);
        let packet = command.header.packet_bytes();
        self.client.receive_at_least(packet.min(HEADER_BYTES + EXECUTE_FLAGS + 1)).await?;
        let bytes = self.client.input.bytes();
        let kind = kind_of(bytes.get(..packet).unwrap_or(bytes));
        self.send_command(command).await?;
        self.note_timeout(statement.map(|statement| &**statement));
        let done = self.answer(kind, To::Client { fill: None, impure: mark.writes }).await?;
        let nothing = unprepared && done.error == Some(UNKNOWN_STATEMENT);
        self.after(if nothing { &Mark::NOTHING } else { &mark }, statement, &done, was).await
    }

    async fn decide_execute(
        &mut self,
        number: u32,
        statement: &Arc<Statement>,
        packet: &[u8],
    ) -> Result<Decided, SessionError> {
        let payload = packet.get(HEADER_BYTES..).unwrap_or_default();
        let capabilities = self.server.about.capabilities;
        let Some(prepared) = self.server.prepareds.get_mut(number) else {
            return Ok(Decided::pass(None, Reason::UnknownStatement));
        };
        let message = Message::read(payload, prepared, capabilities);
        let Some(message) = message else {
            // The server reports the error, unless it can read the message.
            prepared.server_knows_types = true;
            self.replay_hit(&[]).await?;
            return Ok(Decided::pass(Some(statement.clone()), Reason::MessageShape));
        };
        if let Types::Here(types) = &message.types
            && prepared.types.as_deref() != Some(&**types)
        {
            prepared.types = Some(types[..].into());
            prepared.server_knows_types = false;
        }
        let untyped = message.types == Types::Earlier && prepared.types.is_none();
        // A message that names its parameters cannot be rebuilt.
        let unclear = message.named && !prepared.server_knows_types;
        let strange = message.attributes || message.execute.wants_cursor() || prepared.involved || unclear || untyped;
        let (known, taken) = (prepared.types.clone(), (prepared.under, prepared.catalog));
        let decision = if strange {
            self.settle(
                statement.clone(),
                Decision::Pass(Reason::MessageShape),
                (Execution::Text(b""), None),
                statement.text(),
            )
            .await
        } else {
            let sent = (packet, known.as_deref().unwrap_or_default());
            self.decide_bound((number, taken), statement, &message, sent).await
        };
        if matches!(&decision, Ok(Decided { decision: Decision::Hit(()), .. })) {
            return decision;
        }
        let Some(prepared) = self.server.prepareds.get_mut(number) else { return decision };
        let parameters = prepared.parameters;
        let lacks = !std::mem::replace(&mut prepared.server_knows_types, true) && message.types == Types::Earlier;
        if let Some(types) = known.filter(|_| lacks) {
            self.at_hand.rewritten = with_types_of(packet, parameters, &types).filter(|_| !message.named);
            if self.at_hand.rewritten.is_none() {
                self.tell_types(number, &types, message.named).await?;
            }
        }
        decision
    }

    /// `taken`: the settings and the catalogue when the server accepted the statement. `sent`: the packet, and the types that belong to it.
    async fn decide_bound(
        &mut self,
        (number, taken): (u32, (PreparedUnder, CatalogVersion)),
        statement: &Arc<Statement>,
        message: &Message<'_>,
        sent: (&[u8], &[u8]),
    ) -> Result<Decided, SessionError> {
        let (packet, types) = sent;
        let tail = packet.get(HEADER_BYTES + 5..).unwrap_or_default();
        let earlier = if message.types == Types::Earlier { types } else { &[] };
        let execution = Execution::Bound { statement: statement.id, types: earlier, tail };
        let mut asked = false;
        let mut found = loop {
            // What is never kept need not be looked for.
            if self.refusal_of(statement).is_some() {
                break Decision::Fill(Joined(false));
            }
            match self.allowed() {
                Allowed::Ask | Allowed::Pass(Reason::MayHaveTemporary) if !asked && self.decide_to_ask(statement) => {
                    self.ask_before(statement).await?;
                    asked = true;
                }
                Allowed::Pass(reason) => break Decision::Pass(reason),
                Allowed::Ask => break Decision::Pass(Reason::CatalogStale),
                Allowed::Cache(_) if statement.query.skips_look_up() => {
                    break Decision::Pass(Reason::NotAdmitted);
                }
                Allowed::Cache(context) => {
                    break match self.means_the_same(number, taken) {
                        Ok(()) => self.find(context, execution, packet, Kind::Execute).await,
                        Err(reason) => Decision::Pass(reason),
                    };
                }
            }
        };
        if matches!(found, Decision::Hit(())) {
            self.remember_bound(number, message, sent);
            return Ok(Decided::hit());
        }
        // Their values matter to what is kept, and to what takes a snapshot.
        let may_be_cached = matches!(found, Decision::Fill(_)) && self.refusal_of(statement).is_none();
        let parameters = self.server.prepareds.get_mut(number).map_or(0, |prepared| prepared.parameters);
        let bind = || message.execute.bind(parameters, self.server.about.capabilities, Some(types)).ok();
        let nothing = || Bound { types: Vec::new(), has_types: false, values: Vec::new(), has_attributes: false };
        let bound = (may_be_cached || self.transaction.wants_snapshot()).then(bind).flatten().unwrap_or_else(nothing);
        if may_be_cached && statement.query.moves() {
            let moved = self.find_moved(statement, (execution, Some(&bound)), (packet, Kind::Execute), found);
            found = Box::pin(moved).await;
            if matches!(found, Decision::Hit(())) {
                self.remember_bound(number, message, sent);
                return Ok(Decided::hit());
            }
        }
        let missed = matches!(found, Decision::Fill(Joined(false)));
        let decision = self.settle(statement.clone(), found, (execution, Some(&bound)), statement.text()).await?;
        if missed && decision.joins() && Box::pin(self.find_again(execution, packet, Kind::Execute)).await {
            self.remember_bound(number, message, sent);
            return Ok(Decided::hit());
        }
        Ok(decision)
    }

    /// A hit was served for this execution: notes the equivalent for a server that knows no earlier types.
    fn remember_bound(&mut self, number: u32, message: &Message<'_>, (packet, types): (&[u8], &[u8])) {
        let leaves_out = message.types == Types::Earlier;
        let own = self.server.prepareds.number_of(number).filter(|own| *own != number);
        // In most cases the server understands the packet as it is.
        if (!leaves_out && own.is_none()) || !self.replay.is_of(packet) {
            return; // or its diagnostics are those of the hit before it
        }
        if leaves_out
            && let Some(prepared) = self.server.prepareds.get_mut(number)
            && !prepared.server_knows_types
            && let Some(packet) = with_types_of(packet, prepared.parameters, types)
        {
            self.replay.resend(&packet);
        }
        if let Some(own) = own {
            self.replay.name(own);
        }
    }

    /// Whether the statement has the same meaning with this context as at its prepare, for the client, too.
    fn means_the_same(&mut self, number: u32, (under, catalog): (PreparedUnder, CatalogVersion)) -> Result<(), Reason> {
        let Known::Context(context, _) = &self.server.settings.known else { return Err(Reason::SettingsUnknown) };
        let settings = context.settings;
        if catalog != self.shared.catalog_version() {
            return Err(Reason::CatalogStale); // it passes once, so that the client learns its columns anew
        }
        match under {
            PreparedUnder::Context(then) if then == settings => Ok(()),
            PreparedUnder::Era(then) if then == self.server.settings.era => {
                if let Some(prepared) = self.server.prepareds.get_mut(number) {
                    prepared.under = PreparedUnder::Context(settings);
                }
                Ok(())
            }
            _ => Err(Reason::SettingsUnknown),
        }
    }
}

impl<'a> Message<'a> {
    /// None if it cannot be parsed.
    fn read(payload: &'a [u8], prepared: &Prepared, capabilities: Capabilities) -> Option<Self> {
        let execute = Execute::parse(payload).ok()?;
        let named = capabilities.has(Capabilities::QUERY_ATTRIBUTES) && execute.flags & PARAMETER_COUNT_AVAILABLE != 0;
        if !named {
            let types = plain_types(execute.tail, prepared.parameters);
            return Some(Self { execute, types, named, attributes: false });
        }
        let bound = execute.bind(prepared.parameters, capabilities, prepared.types.as_deref()).ok()?;
        let types = match (bound.values.is_empty(), bound.has_types) {
            (true, _) => Types::None,
            (false, true) => Types::Here(bound.types.into()),
            (false, false) => Types::Earlier,
        };
        let named = types != Types::None;
        Some(Self { execute, types, named, attributes: bound.has_attributes })
    }
}

/// Where the types are in a message that neither counts nor names its parameters.
fn plain_types(tail: &[u8], parameters: u16) -> Types<'_> {
    let count = usize::from(parameters);
    if count == 0 {
        return Types::None;
    }
    let at = count.div_ceil(8);
    match (tail.get(at), tail.get(at + 1..at + 1 + 2 * count)) {
        (Some(0), _) => Types::Earlier,
        (_, Some(types)) => Types::Here(types.into()),
        _ => Types::None, // too short: the server will report it
    }
}

/// The packet with the types that it leaves out; None: they do not belong to it, or it would need several packets.
fn with_types_of(packet: &[u8], parameters: u16, types: &[u8]) -> Option<Vec<u8>> {
    let parameters = usize::from(parameters);
    let at = HEADER_BYTES + HEAD_BYTES + parameters.div_ceil(8);
    let (head, rest) = packet.split_at_checked(at)?;
    if types.len() != 2 * parameters || packet.len() - HEADER_BYTES + types.len() >= PACKET_PAYLOAD_MAX {
        return None;
    }
    let payload = [head.get(HEADER_BYTES..)?, &[1], types, rest.get(1..)?].concat();
    let mut out = Vec::with_capacity(payload.len() + HEADER_BYTES);
    packet::put(&mut out, &mut 0, &payload);
    Some(out)
}

/// Appends an execution with parameters of these types, all NULL. The message may have their number and names.
fn put_nulls(out: &mut Vec<u8>, number: u32, types: &[u8], (counted, named): (bool, bool)) {
    let count = types.len() / 2;
    packet::put_with(out, &mut 0, |out| {
        out.push(code::STMT_EXECUTE);
        out.extend_from_slice(&number.to_le_bytes());
        out.push(if counted { PARAMETER_COUNT_AVAILABLE } else { 0 });
        out.extend_from_slice(&1_u32.to_le_bytes());
        if counted {
            put_lenenc(out, count as u64);
        }
        out.resize(out.len() + count.div_ceil(8), 0xff);
        out.push(1);
        for kind in types.chunks_exact(2) {
            out.extend_from_slice(kind);
            if named {
                put_lenenc(out, 0);
            }
        }
    });
}

/// The kind of answer to an execution, by its first packet.
fn kind_of(packet: &[u8]) -> Kind {
    match Answer::to(packet.get(HEADER_BYTES..).unwrap_or_default()) {
        Answer::Packets(kind) => kind,
        Answer::None => Kind::Execute,
    }
}
