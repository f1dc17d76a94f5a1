//! The databases that one `freshet serve` serves: opened, listened for, followed.

use std::io::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use freshet_proxy::{
    AccessRules, Database, Databases, Family, ListenAddress, Listener, Member, ProcessMemory, Target, keep_memory,
};

use crate::access::raise_descriptor_limit;
use crate::allocator::Start;
use crate::config::{DatabaseConfig, Resolved};
use crate::serve::instance::Instance;
use crate::serve::{Following, listen_addresses, mysql, postgres};
use crate::web;

/// Opens what the configuration names, but no connection.
pub(crate) fn open(config: &Resolved) -> Result<Databases> {
    let files_max = raise_descriptor_limit();
    let instance = Instance {
        rules: AccessRules::new(&config.args.access.settings(files_max))?,
        memory: ProcessMemory::new(config.args.memory.0),
        query_log: Arc::default(),
        count: config.databases.len().max(1) as u64,
        files_max,
    };
    let open = |config: &DatabaseConfig| {
        let name = config.label();
        let family = if config.args.is_mysql() {
            mysql::open(config, &instance).map(Family::MySql)
        } else {
            postgres::open(config, &instance).map(Family::Postgres)
        };
        let family = family.with_context(|| format!("database {name}"))?;
        Ok(Database { name, family, takes_others: config.name.is_none() })
    };
    let all: Vec<Database> = config.databases.iter().map(open).collect::<Result<_>>()?;
    Ok(Databases::new(all, instance.rules, instance.query_log))
}

/// Listens, and prints the addresses.
pub(super) async fn listen(config: &Resolved, databases: &Arc<Databases>) -> Result<Listener> {
    let args = &config.args;
    let listener = Listener::bind(&targets(config, databases)?, args.workers(), databases).await?;
    let http = web::bind(&args.web, databases.clone()).await?;
    let addresses = listener.addresses()?;
    let mut stdout = std::io::stdout();
    for address in &addresses {
        match address {
            ListenAddress::Tcp(tcp) => writeln!(stdout, "listening on {tcp}")?,
            ListenAddress::Unix(path) => writeln!(stdout, "listening on {}", path.display())?,
        }
    }
    if let Some(http) = http {
        writeln!(stdout, "http on {http}")?;
    }
    stdout.flush()?;
    for Database { name, family, .. } in databases.databases() {
        let upstream = &family.shared().settings.upstream;
        tracing::info!(database = name, upstream, ?addresses, workers = args.workers(), "serving");
    }
    Ok(listener)
}

/// The addresses, and where each of them leads.
fn targets(config: &Resolved, databases: &Arc<Databases>) -> Result<Vec<(ListenAddress, Target)>> {
    let at_top = |default: &str| {
        let texts = config.args.listen.clone();
        if texts.is_empty() { vec![default.to_owned()] } else { texts }
    };
    let mut all = Vec::new();
    if databases.databases().iter().any(|database| matches!(database.family, Family::Postgres(_))) {
        let addresses = listen_addresses(&at_top("127.0.0.1:6432"), false)?;
        all.extend(addresses.into_iter().map(|address| (address, Target::Postgres(databases.clone()))));
    }
    for (Database { family, .. }, config) in databases.databases().iter().zip(&config.databases) {
        let Family::MySql(mysql) = family else { continue };
        let texts = if config.listen.is_empty() { at_top("127.0.0.1:3307") } else { config.listen.clone() };
        let addresses = listen_addresses(&texts, true)?;
        all.extend(addresses.into_iter().map(|address| (address, Target::MySql(mysql.clone()))));
    }
    Ok(all)
}

/// Starts the change streams and services of all databases.
pub(super) fn start_services(config: &Resolved, databases: &Databases) -> Vec<Following> {
    let all = databases.databases().iter().zip(&config.databases);
    let several = all.len() > 1;
    let start = |(database, config): (&Database, &DatabaseConfig)| {
        let shared = database.family.shared().clone();
        tokio::spawn(async move { shared.scheduling_delay.watch().await });
        let name = database.name.as_str();
        let span = if several { tracing::info_span!("database", name) } else { tracing::Span::none() };
        match &database.family {
            Family::MySql(mysql) => mysql::start_services(mysql, &span),
            Family::Postgres(pg) => postgres::start_services(pg, &config.args, &span),
        }
    };
    all.map(start).collect()
}

/// Keeps all caches within the memory limit, in the background.
pub(super) fn start_memory(config: &Resolved, databases: &Databases, start: Start) {
    let member = |(database, config): (&Database, &DatabaseConfig)| {
        let (floor, ceiling) = (config.memory_min, config.memory_max);
        Member { shared: database.family.shared().clone(), floor, ceiling }
    };
    let members: Vec<Member> = databases.databases().iter().zip(&config.databases).map(member).collect();
    let Some(memory) = members.first().map(|member| member.shared.settings.memory.clone()) else { return };
    tokio::spawn(keep_memory(memory, members, move || start.taken_since()));
}
