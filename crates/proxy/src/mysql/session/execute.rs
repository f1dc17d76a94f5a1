//! Prepared statements of the binary protocol.
//!
//! A client may leave out the types of parameters once it has sent them. The server does not know types that were sent with a hit, so they are added
//! to a later message that lacks them and has to pass. If that would change the number of its packets, or is impossible, the server receives the
//! types before it. If no earlier message had types, the server refuses the message, so it passes unchanged.

use std::sync::Arc;

use freshet_types::{CatalogVersion, Reason};
use freshet_wire::mysql::capabilities::Capabilities;
use freshet_wire::mysql::packet::HEADER_BYTES;
use freshet_wire::mysql::response::{EXECUTE_FLAGS, Kind};
use freshet_wire::mysql::statement::{Bound, Execute};

use crate::mysql::session::execution::{Execution, Joined};
use crate::mysql::session::forward::To;
use crate::mysql::session::idle::Command;
use crate::mysql::session::known::{Allowed, Known};
use crate::mysql::session::mark::Mark;
use crate::mysql::session::message::{
    HEAD_BYTES, Message, PARAMETER_COUNT_AVAILABLE, Types, head_with_types_of, kind_of, plain_types, put_nulls,
    with_types_of,
};
use crate::mysql::session::own_statements::{needs_reprepare, put_number};
use crate::mysql::session::prepared::{Involved, PreparedUnder};
use crate::mysql::session::text::Decided;
use crate::mysql::session::{Outcome, Session, SessionError};
use crate::session::lookup::Decision;
use crate::statement::registry::Statement;

/// Code of the error that no statement has this number.
const UNKNOWN_STATEMENT: u16 = 1243;

impl Session {
    pub(crate) async fn execute(&mut self, command: Command) -> Result<(), SessionError> {
        let number = self.number_at_hand(&command).await?;
        let Some(statement) =
            number.and_then(|number| self.server.prepareds.get_mut(number)).map(|p| p.statement.clone())
        else {
            self.note_passed(None, &Reason::UnknownStatement);
            if self.server.shares_statements() {
                self.name_nothing(number).await?;
            }
            self.replay_hit(&[]).await?;
            // Connectors send an execution directly after its prepare, which may fail.
            let unprepared = self.server.prepareds.are_all();
            return self.pass_large(command, None, unprepared).await;
        };
        let statement = match statement {
            Ok(statement) if command.whole => statement,
            Ok(statement) => return self.execute_large(command, number.unwrap_or_default(), &statement).await,
            Err(reason) => {
                if !self.reach_statement(&command, number.unwrap_or_default()).await? {
                    return Ok(());
                }
                let prepared = number.and_then(|number| self.server.prepareds.get_mut(number));
                let unread = prepared.and_then(|prepared| prepared.unread.clone());
                self.hold_statements_before_code(unread.as_deref()).await?;
                self.at_hand.unread = unread;
                return self.execute_unknown(command, &reason).await;
            }
        };
        self.execute_whole(command, number.unwrap_or_default(), &statement).await
    }

    async fn execute_whole(
        &mut self,
        command: Command,
        number: u32,
        statement: &Arc<Statement>,
    ) -> Result<(), SessionError> {
        loop {
            let input = self.client.input.take();
            let packet = input.bytes().get(..command.header.packet_bytes()).unwrap_or_default();
            let kind = kind_of(packet);
            let decision = self.decide_execute(number, statement, packet).await;
            self.client.input = input;
            let catalog = self.shared.catalog_version();
            let Some(decision) = decision? else {
                if !self.ready_statement(&command, number).await? {
                    return Ok(());
                }
                continue;
            };
            let passed = !matches!(decision.decision, Decision::Hit(()));
            if passed {
                self.address(number);
            }
            self.carry_out(decision, command, kind).await?;
            self.executed(Some(number).filter(|_| passed), catalog);
            return Ok(());
        }
    }

    /// The server has executed a statement.
    fn executed(&mut self, number: Option<u32>, catalog: CatalogVersion) {
        let outcome = self.answer.outcome;
        if let Some(prepared) = number.and_then(|number| self.server.prepareds.get_mut(number)) {
            prepared.catalog = catalog;
            if outcome == Outcome::Failed {
                prepared.forget_types_there();
            }
            prepared.involved = match outcome {
                Outcome::Cursor => Involved::Cursor,
                // A piece of a parameter that does not exist, or is too long, makes all executions fail until it is reset.
                Outcome::Failed => prepared.involved,
                // Pieces of parameters are dropped with the execution.
                Outcome::Plain => Involved::No,
            };
        }
    }

    /// Only the possible effects of a bulk command's statement matter.
    pub(crate) async fn bulk_execute(&mut self, command: Command) -> Result<(), SessionError> {
        let number = self.number_at_hand(&command).await?;
        if self.server.shares_statements() {
            let known = number.filter(|number| self.server.prepareds.get(*number).is_some());
            match known {
                None => self.name_nothing(number).await?,
                Some(known) if self.reach_statement(&command, known).await? => {}
                Some(_) => return Ok(()),
            }
        }
        let prepared = number.and_then(|number| self.server.prepareds.get_mut(number));
        let statement = prepared.and_then(|prepared| {
            // From now on the server knows the types in this command, which has another form.
            (prepared.types, prepared.server_knows_types) = (None, true);
            if let Some(own) = &mut prepared.own {
                own.meaning = None;
            }
            self.at_hand.unread.clone_from(&prepared.unread);
            prepared.statement.clone().ok()
        });
        let refusal = statement.as_ref().and_then(|statement| statement.query.template.refusal());
        self.last.passes(statement.as_ref(), refusal.unwrap_or(&Reason::MessageShape));
        match &statement {
            Some(statement) => self.hold_statements_before(statement).await?,
            None => self.hold_statements_before_code(self.at_hand.unread.clone().as_deref()).await?,
        }
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
        let (is_own, count) = (prepared.own.is_some(), usize::from(prepared.parameters));
        let head = HEADER_BYTES + HEAD_BYTES + count.div_ceil(8) + 1;
        let packet = command.header.packet_bytes();
        self.client.receive_at_least(packet.min(head + 2 * count)).await?;
        let bytes = self.client.input.bytes();
        let payload = bytes.get(..packet).unwrap_or(bytes).get(HEADER_BYTES..).unwrap_or_default();
        let Ok(execute) = Execute::parse(payload) else {
            if !self.reach_statement(&command, number).await? {
                return Ok(());
            }
            return self.execute_unknown(command, &Reason::MessageShape).await;
        };
        let named = self.server.about.capabilities.has(Capabilities::QUERY_ATTRIBUTES)
            && execute.flags & PARAMETER_COUNT_AVAILABLE != 0;
        let types = plain_types(execute.tail, prepared.parameters).into_owned();
        let is_there = if is_own {
            self.reach_with_types(&command, number, &types).await?
        } else {
            self.tell_types_before(number, types, named).await?
        };
        if !is_there {
            return Ok(());
        }
        self.hold_statements_before(statement).await?;
        let catalog = self.shared.catalog_version();
        self.pass_large(command, Some(statement), false).await?;
        self.executed(Some(number), catalog);
        Ok(())
    }

    /// A large message with these types is about to be sent, of a statement whose number is the session's own: sees to it that the server has the
    /// statement, and that it knows the types. False: it cannot, and the client has been told so.
    async fn reach_with_types(
        &mut self,
        command: &Command,
        number: u32,
        types: &Types<'_>,
    ) -> Result<bool, SessionError> {
        if let (Types::Here(types), Some(prepared)) = (types, self.server.prepareds.get_mut(number)) {
            prepared.types = Some(types[..].into());
        }
        if !self.reach_statement(command, number).await? {
            return Ok(false);
        }
        let Some(prepared) = self.server.prepareds.get_mut(number) else { return Ok(true) };
        let (known, parameters) = (prepared.types.clone(), prepared.parameters);
        let knows = prepared.tell_types();
        let Some(known) = known.filter(|_| *types == Types::Earlier && !knows) else { return Ok(true) };
        let head = HEADER_BYTES + HEAD_BYTES + usize::from(parameters).div_ceil(8) + 1;
        let bytes = self.client.input.bytes().get(..head).unwrap_or_default();
        let rewritten = head_with_types_of(bytes, command.header, &known);
        let Some(rewritten) = rewritten else {
            prepared.mix_types();
            self.refuse(command, &needs_reprepare()).await?;
            return Ok(false);
        };
        self.at_hand.rewritten = Some((rewritten, head));
        Ok(true)
    }

    /// The same where the number is the server's.
    async fn tell_types_before(&mut self, number: u32, types: Types<'_>, named: bool) -> Result<bool, SessionError> {
        let Some(prepared) = self.server.prepareds.get_mut(number) else { return Ok(true) };
        let lacking = match types {
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
        Ok(true)
    }

    /// Sends the types of the parameters to the server, which does not know them since a hit took the message: by an execution of Freshet's own, in
    /// which all parameters are NULL. A statement that has had a hit only reads. Not where the number is the session's own: there any statement may be
    /// one that the server has not had the types for.
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
        self.at_hand.is_prepared = true;
        self.after(if nothing { &Mark::NOTHING } else { &mark }, statement, &done, was).await
    }

    /// None: the statement must be prepared on the session's connection first.
    async fn decide_execute(
        &mut self,
        number: u32,
        statement: &Arc<Statement>,
        packet: &[u8],
    ) -> Result<Option<Decided>, SessionError> {
        let payload = packet.get(HEADER_BYTES..).unwrap_or_default();
        let capabilities = self.server.about.capabilities;
        let Some(prepared) = self.server.prepareds.get_mut(number) else {
            return Ok(Some(Decided::pass(None, Reason::UnknownStatement)));
        };
        let message = Message::read(payload, prepared, capabilities);
        let Some(message) = message else {
            // The server reports the error, unless it can read the message.
            prepared.server_knows_types = prepared.own.is_none();
            if !self.is_ready(number) {
                return Ok(None);
            }
            if let Some(prepared) = self.server.prepareds.get_mut(number) {
                prepared.mix_types();
            }
            self.replay_hit(&[]).await?;
            return Ok(Some(Decided::pass(Some(statement.clone()), Reason::MessageShape)));
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
        let strange = message.attributes || message.execute.wants_cursor() || unclear || untyped;
        let strange = strange || prepared.involved != Involved::No;
        let (known, taken) = (prepared.types.clone(), (prepared.under, prepared.catalog));
        let decision = if strange {
            if !self.is_ready(number) {
                return Ok(None);
            }
            self.settle(
                statement.clone(),
                Decision::Pass(Reason::MessageShape),
                (Execution::Text(b""), None),
                statement.text(),
            )
            .await
            .map(Some)
        } else {
            let sent = (packet, known.as_deref().unwrap_or_default());
            self.decide_bound((number, taken), statement, &message, sent).await
        };
        if matches!(&decision, Ok(None | Some(Decided { decision: Decision::Hit(()), .. }))) {
            return decision;
        }
        self.add_types(number, &message, (packet, known)).await?;
        decision
    }

    /// The message is about to be sent: if it leaves out the types, and the server does not know them, they are put into it. `known`: the types that the
    /// client has sent last.
    async fn add_types(
        &mut self,
        number: u32,
        message: &Message<'_>,
        (packet, known): (&[u8], Option<Arc<[u8]>>),
    ) -> Result<(), SessionError> {
        let Some(prepared) = self.server.prepareds.get_mut(number) else { return Ok(()) };
        let (parameters, there) = (prepared.parameters, prepared.here());
        if message.types == Types::None && parameters > 0 && there.is_some() {
            prepared.forget_types_there(); // it is too short
            return Ok(());
        }
        let lacks = !prepared.tell_types() && message.types == Types::Earlier;
        let Some(types) = known.filter(|_| lacks) else { return Ok(()) };
        let rewritten = with_types_of(packet, parameters, &types).filter(|_| !message.named);
        match (rewritten, there) {
            (Some(mut rewritten), there) => {
                put_number(&mut rewritten, there.unwrap_or(number));
                self.at_hand.rewritten = Some((rewritten, packet.len()));
                Ok(())
            }
            (None, None) => self.tell_types(number, &types, message.named).await,
            // It is short, and has no names: see `not_offered`.
            (None, Some(_)) => Err(SessionError::OwnAnswer),
        }
    }

    /// `taken`: the settings and the catalogue when the server accepted the statement. `sent`: the packet, and the types that belong to it.
    async fn decide_bound(
        &mut self,
        (number, taken): (u32, (PreparedUnder, CatalogVersion)),
        statement: &Arc<Statement>,
        message: &Message<'_>,
        sent: (&[u8], &[u8]),
    ) -> Result<Option<Decided>, SessionError> {
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
                    if !self.is_ready(number) {
                        return Ok(None);
                    }
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
            return Ok(Some(Decided::hit()));
        }
        if !self.is_ready(number) {
            return Ok(None);
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
                return Ok(Some(Decided::hit()));
            }
        }
        let missed = matches!(found, Decision::Fill(Joined(false)));
        let decision = self.settle(statement.clone(), found, (execution, Some(&bound)), statement.text()).await?;
        if missed && decision.joins() && Box::pin(self.find_again(execution, packet, Kind::Execute)).await {
            self.remember_bound(number, message, sent);
            return Ok(Some(Decided::hit()));
        }
        Ok(Some(decision))
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
            && (!prepared.server_knows_types || prepared.own.is_some())
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
