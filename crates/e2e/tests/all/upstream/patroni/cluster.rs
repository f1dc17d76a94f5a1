//! etcd, and PostgreSQL servers that Patroni looks after.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use freshet_testbed::{Installation, Leash, Owner, find_program, process};

use crate::support::relaying::{listen, pass_on};
use crate::support::{Login, PATIENCE, RawClient, Version, eventually, get};

pub(super) const LOGIN: Login<'_> = Login { user: "postgres", database: "postgres", password: None, more: &[] };

/// A program in a process group of its own; ends with this value, and with the process of the tests.
struct Running {
    child: Child,
    _leash: Leash,
}

impl Running {
    fn start(mut command: Command, log: &Path) -> Result<Self> {
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        let leash = Leash::tie_group(child.id())?;
        Ok(Self { child, _leash: leash })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Patroni stops its server. It may have ended already.
        let _ = process::terminate(self.child.id());
        let _ = self.child.wait();
    }
}

/// The way of a member to etcd, which can be cut.
#[derive(Clone, Default)]
struct Link(Arc<Mutex<(bool, Vec<TcpStream>)>>);

impl Link {
    fn open(etcd: SocketAddr) -> Result<(Self, SocketAddr)> {
        let link = Self::default();
        let Self(state) = link.clone();
        let address = listen(etcd, move |client, server| {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            ensure!(!state.0, "cut");
            state.1.push(client.try_clone()?);
            pass_on(client, server, |_| (), |_| ())
        })?;
        Ok((link, address))
    }

    fn set_cut(&self, is_cut: bool) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = is_cut;
        for stream in state.1.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// A server and its Patroni.
pub(super) struct Member {
    pub(super) name: String,
    /// Of its server.
    pub(super) address: SocketAddr,
    rest: SocketAddr,
    folder: PathBuf,
    link: Link,
    patroni: Mutex<Option<Running>>,
}

impl Member {
    fn says(&self, path: &str) -> bool {
        get(self.rest, path).is_ok_and(|(status, _)| status == 200)
    }

    /// Whether its server takes writes.
    pub(super) fn is_primary(&self) -> Result<bool> {
        Ok(RawClient::login(self.address, LOGIN)?.value("select pg_is_in_recovery()")? == "f")
    }

    /// Patroni and the server end without a word.
    pub(super) fn kill9(&self) -> Result<()> {
        let lock = fs::read_to_string(self.folder.join("data/postmaster.pid"))?;
        let postmaster: u32 = lock.lines().next().context("no process id")?.parse()?;
        let mut patroni = self.patroni.lock().unwrap_or_else(PoisonError::into_inner);
        let running = patroni.take().context("it is down")?;
        process::kill(running.child.id())?;
        // The postmaster first, so that it cannot look after its children.
        let children = process::children(postmaster)?;
        process::kill(postmaster)?;
        for child in children {
            // It may have ended already.
            let _ = process::kill(child.pid);
        }
        Ok(())
    }

    /// Its Patroni no longer reaches etcd, or does again.
    pub(super) fn cut_from_etcd(&self, is_cut: bool) {
        self.link.set_cut(is_cut);
    }
}

/// The cluster. Everything ends with this value.
pub(super) struct Cluster {
    pub(super) members: Vec<Member>,
    programs: PathBuf,
    owner: Owner,
    folder: PathBuf,
    _etcd: Running,
    /// Of etcd; removed after it has ended.
    _state: Folder,
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays lies in a temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Cluster {
    /// Starts so many members, and waits until one of them is a synchronous standby. None: etcd or Patroni are not installed.
    pub(super) fn start(version: Version, count: usize) -> Result<Option<Self>> {
        let (Some(etcd), Some(programs)) = (find_program("etcd"), programs()) else { return Ok(None) };
        // A port may have been taken meanwhile.
        let first = Self::start_once(version, count, &etcd, &programs);
        first.or_else(|_| Self::start_once(version, count, &etcd, &programs)).map(Some)
    }

    fn start_once(version: Version, count: usize, etcd: &Path, programs: &Path) -> Result<Self> {
        let (owner, folder, state) = (Owner::detect()?, new_folder(std::env::temp_dir())?, Folder(etcd_folder()?));
        owner.take(&folder)?;
        owner.take(&state.0)?;
        let (client, peer) = (free_address()?, free_address()?);
        let mut command = owner.command(etcd);
        command.arg("--data-dir").arg(state.0.join("etcd")).args(["--name", "one", "--log-level", "warn"]);
        command
            .arg(format!("--listen-client-urls=http://{client}"))
            .arg(format!("--advertise-client-urls=http://{client}"));
        command
            .arg(format!("--listen-peer-urls=http://{peer}"))
            .arg(format!("--initial-advertise-peer-urls=http://{peer}"));
        command.arg(format!("--initial-cluster=one=http://{peer}"));
        let etcd = Running::start(command, &folder.join("etcd.log"))?;
        eventually(PATIENCE, || {
            ensure!(get(client, "/health")?.0 == 200, "no etcd");
            Ok(())
        })?;
        let programs = programs.to_owned();
        let mut cluster = Self { members: Vec::new(), programs, owner, folder, _etcd: etcd, _state: state };
        let installation = version.installation()?;
        for number in 1..=count {
            let member = cluster.member(number, client, &installation)?;
            cluster.start_patroni(&member)?;
            cluster.members.push(member);
            if number == 1 {
                cluster.leader()?;
            }
        }
        cluster.wait_healthy()?;
        Ok(cluster)
    }

    fn member(&self, number: usize, etcd: SocketAddr, installation: &Installation) -> Result<Member> {
        let (name, folder) = (format!("member{number}"), self.folder.join(format!("member{number}")));
        fs::create_dir(&folder)?;
        self.owner.take(&folder)?;
        let (link, proxy) = Link::open(etcd)?;
        let (address, rest) = (free_address()?, free_address()?);
        let bin = installation.program("postgres").parent().context("a folder")?.display().to_string();
        let facts = HashMap::from([
            ("NAME", name.clone()),
            ("REST", rest.to_string()),
            ("ETCD", proxy.to_string()),
            ("ADDRESS", address.to_string()),
            ("FOLDER", folder.display().to_string()),
            ("BIN", bin),
        ]);
        let mut text = include_str!("member.yml").to_owned();
        for (name, value) in facts {
            text = text.replace(&format!("${name}"), &value);
        }
        fs::write(folder.join("patroni.yml"), text)?;
        Ok(Member { name, address, rest, folder, link, patroni: Mutex::new(None) })
    }

    /// Starts the Patroni of a member that is down.
    pub(super) fn start_patroni(&self, member: &Member) -> Result<()> {
        let mut command = self.owner.command(&self.programs.join("patroni"));
        command.arg(member.folder.join("patroni.yml"));
        let running = Running::start(command, &member.folder.join("patroni.log"))?;
        *member.patroni.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        Ok(())
    }

    /// `patronictl switchover`, which is under way.
    pub(super) fn switch_over(&self, from: &Member, to: &Member) -> Result<Child> {
        let mut command = self.owner.command(&self.programs.join("patronictl"));
        command.arg("-c").arg(from.folder.join("patroni.yml")).args(["switchover", "shop", "--force"]);
        command.args(["--primary", &from.name, "--candidate", &to.name]);
        let log = File::create(self.folder.join("patronictl.log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().context("starting patronictl")
    }

    /// The member that is the leader by all that Patroni and its server say.
    pub(super) fn leader(&self) -> Result<&Member> {
        eventually(PATIENCE, || {
            let leaders: Vec<_> = self.members.iter().filter(|member| member.says("/primary")).collect();
            let [leader] = leaders[..] else { bail!("{} leaders; {}", leaders.len(), self.logs()) };
            ensure!(leader.is_primary()?, "{} does not take writes", leader.name);
            Ok(leader)
        })
    }

    /// A standby without which nothing is acknowledged: no failover loses what was.
    pub(super) fn synchronous(&self) -> Result<&Member> {
        eventually(PATIENCE, || {
            let found = self.members.iter().find(|member| member.says("/synchronous"));
            found.with_context(|| format!("no synchronous standby; {}", self.logs()))
        })
    }

    /// Waits until all members are there, and one is a synchronous standby.
    pub(super) fn wait_healthy(&self) -> Result<()> {
        let leader = self.leader()?;
        self.synchronous()?;
        eventually(PATIENCE, || {
            let mut client = RawClient::login(leader.address, LOGIN)?;
            // Others are Freshet's change stream.
            let streams = "select count(*) from pg_stat_replication where state = 'streaming' and application_name like 'member%'";
            let count = client.value(streams)?;
            ensure!(count == (self.members.len() - 1).to_string(), "{count} standbys; {}", self.logs());
            let waits = client.value("select count(*) from pg_stat_replication where sync_state = 'sync'")?;
            ensure!(waits == "1", "{waits} synchronous standbys");
            Ok(())
        })
    }

    /// The upstream that names all of them.
    pub(super) fn upstream(&self) -> String {
        let hosts: Vec<_> = self.members.iter().map(|member| member.address.to_string()).collect();
        format!("postgres://postgres@{}/postgres?target_session_attrs=primary", hosts.join(","))
    }

    /// The REST interfaces of all.
    pub(super) fn rest(&self) -> String {
        self.members.iter().map(|member| format!("http://{}", member.rest)).collect::<Vec<_>>().join(",")
    }

    /// The ends of Patroni's logs.
    pub(super) fn logs(&self) -> String {
        let tail = |path: PathBuf| {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<_> = text.lines().rev().take(12).collect();
            format!("{}:\n{}\n", path.display(), lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        self.members.iter().map(|member| tail(member.folder.join("patroni.log"))).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // All at once, since each stops its server.
        for member in &self.members {
            if let Some(running) = &*member.patroni.lock().unwrap_or_else(PoisonError::into_inner) {
                let _ = process::terminate(running.child.id());
            }
        }
        self.members.clear();
        // What stays lies in the temporary directory.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Patroni's programs, if they are those that are asked for now.
fn programs() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.testbed");
    let folders = [here, PathBuf::from("/var/tmp/freshet-testbed")].map(|folder| folder.join("patroni"));
    let is_installed = |folder: &&PathBuf| {
        fs::read_to_string(folder.join("requirements.txt")).is_ok_and(|text| text == include_str!("requirements.txt"))
    };
    folders.iter().find(is_installed).map(|folder| folder.join("bin"))
}

/// In memory where that can be: etcd waits for the disk at each write, and a leader loses the key if that takes long.
fn etcd_folder() -> Result<PathBuf> {
    new_folder(PathBuf::from("/dev/shm")).or_else(|_| new_folder(std::env::temp_dir()))
}

fn new_folder(parent: PathBuf) -> Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("freshet-patroni-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let folder = fs::canonicalize(parent)?.join(name);
    fs::create_dir(&folder)?;
    Ok(folder)
}

/// An address without a listener.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
