//! Random traffic of every kind on four hosts, with clients killed at random, while four things are watched from outside the daemons:
//! nobody holds what another one holds ([`proof`]), no operation has a result that the schedule cannot lead to ([`codes`]), no value of a
//! lock value block is lost or torn ([`value`]), and no host starves.
//!
//! Each client is a process of its own (`src/bin/mixed_client.rs`) that plays random [`moves`]. Known faults of the original are
//! avoided by what a resource is used for ([`site::Class`]).

pub mod checks;
pub mod client;
pub mod codes;
pub mod moves;
pub mod proof;
pub mod report;
pub mod site;
pub mod value;

use std::fs;
use std::time::{Duration, Instant};

use crate::bounded::{self, Output, Running};
use crate::dice::Dice;
use crate::host::Host;
use crate::program::{Program, build_dir};
use crate::storage::{scratch_dir, text};
use client::{ASKED_BEGUN, ASKED_GRANTED, Client, Identity, Wanted};
use proof::{Mode, Proof};
use report::Report;
use site::{Class, IO_TIMEOUT, LOCKSPACES, OTHER_NAME, SPOTS, Site};

/// Hosts of a cluster.
pub const HOSTS: u64 = 4;

/// Clients of a host that play everything; one more only changes a name.
const PLAYERS: u64 = 3;
/// A client is killed every so often, at most, in milliseconds.
const KILL_EVERY_MS: u64 = 900;
/// Joining takes two waits of 2 T; more under load.
const JOIN_LIMIT: Duration = Duration::from_secs(60);
/// A client ends within this time after the run: its last command may take a while.
const END_LIMIT: Duration = Duration::from_secs(90);
/// At the end every host can have every lease within this time.
const AUDIT_LIMIT: Duration = Duration::from_secs(60);

/// A client that runs.
#[derive(Debug)]
struct Player {
    host: usize,
    number: u64,
    label: String,
    running: Running,
    killed: bool,
}

/// Four hosts, and where the disks lie.
#[derive(Debug)]
struct Cluster {
    // Hosts are dropped first: they use the disks.
    hosts: Vec<Host>,
    site: Site,
    _dir: tempfile::TempDir,
}

/// Runs hosts of these programs for `length`, with what `seed` decides.
///
/// # Panics
/// When two clients held one lease in ways that exclude each other, when an operation had an unexpected result, when a value was lost
/// or torn, when a lease cannot be had at the end, and when a client ended in any other way than it should.
#[must_use]
pub fn run(programs: &[Program; 4], length: Duration, seed: u64) -> Report {
    eprintln!("mixed run of {length:?}, MIXED_SEED={seed}");
    let cluster = Cluster::start(programs);
    let mut report = Report::new(programs);
    let mut dice = Dice::new("kills", seed);
    let end = Instant::now() + length;
    let mut incarnation = 0;
    let mut players: Vec<Player> = Vec::new();
    for host in 0..cluster.hosts.len() {
        for number in 0..=PLAYERS {
            players.push(cluster.player(host, number, incarnation, seed, end));
        }
    }
    let mut next_kill = Instant::now() + Duration::from_millis(KILL_EVERY_MS);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
        if Instant::now() >= next_kill {
            next_kill = Instant::now() + Duration::from_millis(dice.below(KILL_EVERY_MS));
            let index = usize::try_from(dice.below(players.len() as u64)).unwrap_or(0);
            // See `Class::Renamed`.
            if players[index].number < PLAYERS {
                players[index].killed = true;
                players[index].running.kill();
                report.killed += 1;
            }
        }
        for player in &mut players {
            if player.running.ended() && Instant::now() < end {
                let output = player.running.finish(END_LIMIT);
                cluster.judge_end(player, &output);
                report.add(player.host, &output.stdout);
                incarnation += 1;
                *player = cluster.player(player.host, player.number, incarnation, seed, end);
            }
        }
    }
    for player in &mut players {
        let output = player.running.finish(length + END_LIMIT);
        cluster.judge_end(player, &output);
        report.add(player.host, &output.stdout);
    }
    cluster.audit();
    eprintln!("{report}");
    report
}

/// Runs one client beside a wrong entry in the proof or the ledger, and returns what it complained of; for the test that the run notices.
///
/// # Panics
/// When it ends without a complaint.
#[must_use]
pub fn complaint(programs: &[Program; 4], spoil: impl FnOnce(&Proof)) -> String {
    let cluster = Cluster::start(programs);
    let proof = Proof::open(cluster.site.dir());
    spoil(&proof);
    let end = Instant::now() + Duration::from_secs(30);
    for incarnation in 0.. {
        let mut player = cluster.player(0, 0, incarnation, 1, end);
        let output = player.running.finish(END_LIMIT);
        assert!(output.code != 0, "the client noticed nothing: {output}");
        if !output.stderr.is_empty() {
            return output.stderr;
        }
        // It asked itself to let go.
        cluster.judge_end(&player, &output);
    }
    unreachable!("the last client ends well")
}

impl Cluster {
    fn start(programs: &[Program; 4]) -> Self {
        let dir = scratch_dir("mixed");
        let site = Site::new(dir.path());
        site.make_disks();
        let hosts: Vec<Host> = (1..)
            .zip(programs)
            .map(|(host_id, program)| Host::start(*program, &format!("host{host_id}")))
            .collect();
        let cluster = Self { hosts, site, _dir: dir };
        cluster.format();
        cluster.join();
        cluster
    }

    fn format(&self) {
        let seconds = IO_TIMEOUT.to_string();
        for (index, (_, _, sector, area)) in LOCKSPACES.iter().enumerate() {
            let sizes = ["-Z".to_owned(), sector.to_string(), "-A".to_owned(), format!("{area}M")];
            let sizes: Vec<&str> = sizes.iter().map(String::as_str).collect();
            let lockspace = self.site.lockspace_arg(index, 0);
            let arguments = ["client", "init", "-s", &lockspace, "-o", &seconds];
            let _ = self.hosts[0].client(&[&arguments[..], &sizes[..]].concat()).success();
            for spot in SPOTS.iter().filter(|spot| spot.lockspace == index) {
                let resource = self.site.resource_arg(spot);
                let arguments = ["client", "init", "-r", &resource];
                let _ = self.hosts[0].client(&[&arguments[..], &sizes[..]].concat()).success();
            }
        }
    }

    fn join(&self) {
        let seconds = IO_TIMEOUT.to_string();
        let mut joins = Vec::new();
        for (host_id, host) in (1..).zip(&self.hosts) {
            for index in 0..LOCKSPACES.len() {
                let lockspace = self.site.lockspace_arg(index, host_id);
                let arguments = ["client", "add_lockspace", "-s", &lockspace, "-o", &seconds];
                joins.push(host.client_in_background(&arguments));
            }
        }
        for join in &mut joins {
            let _ = join.finish(JOIN_LIMIT).success();
        }
        for host in &self.hosts {
            for (name, ..) in LOCKSPACES {
                bounded::wait_until("all hosts to be seen live", JOIN_LIMIT, || {
                    let (result, hosts) = host.connect().get_hosts(name, 0);
                    result == 0
                        && hosts.iter().filter(|host| host.flags & 0xf == 3).count() == self.hosts.len()
                });
            }
        }
    }

    fn player(&self, host: usize, number: u64, incarnation: u64, seed: u64, end: Instant) -> Player {
        let label = format!("{}-{number}-{incarnation}", self.hosts[host].name());
        let mut command = bounded::dying_with_us(&build_dir().join("mixed_client"));
        let left = end.saturating_duration_since(Instant::now()).as_millis();
        command.args([text(self.hosts[host].run_dir()), text(self.site.dir()), &label]);
        command.args([(host + 1).to_string(), self.hosts[host].program().word().to_owned()]);
        command.args([seed.to_string(), left.to_string()]);
        command.arg(if number == PLAYERS { "renamer" } else { "player" });
        Player { host, number, label, running: Running::start(command), killed: false }
    }

    /// A client ends by itself at the end of the run, by our hand, or by a signal after it held what others ask for.
    fn judge_end(&self, player: &Player, output: &Output) {
        let signalled = [128 + 9, 128 + 15].contains(&output.code);
        let may_be = player.killed || held_asked(&output.stdout);
        // Whoever is killed while it complains of what it has seen has seen it all the same.
        if output.code == 0 || signalled && may_be && output.stderr.is_empty() {
            return;
        }
        if let Some(dir) = std::env::var_os("MIXED_LOGS") {
            let dir = std::path::PathBuf::from(dir);
            for host in &self.hosts {
                // The failure itself is told below, whether this works or not.
                let _ = fs::write(dir.join(host.name()), host.log());
            }
            let _ = fs::write(dir.join(&player.label), &output.stdout);
        }
        let begin = output.stdout.lines().count().saturating_sub(40);
        let tail: Vec<&str> = output.stdout.lines().skip(begin).collect();
        panic!(
            "client {} (pid {}) ended with {}:\n{}\nwhat it did last:\n{}",
            player.label,
            player.running.pid(),
            output.code,
            output.stderr,
            tail.join("\n")
        );
    }

    /// When nobody uses them any more every host can have every lease, with the value set last.
    fn audit(&self) {
        let mut clients: Vec<Client> = (1..)
            .zip(&self.hosts)
            .map(|(host_id, host)| {
                let me = Identity {
                    label: format!("audit of {}", host.name()),
                    run_dir: host.run_dir().to_owned(),
                    host_id,
                    program: host.program(),
                };
                Client::start(me, self.site.clone())
            })
            .collect();
        for client in &mut clients {
            for spot in (0..SPOTS.len()).filter(|spot| SPOTS[*spot].class == Class::Kept) {
                client.release_orphan(spot, true);
            }
        }
        for (spot, described) in SPOTS.iter().enumerate() {
            let mut waiting: Vec<usize> = (0..clients.len()).collect();
            let what = format!("every host to have {} at the end", described.name);
            bounded::wait_until(&what, AUDIT_LIMIT, || {
                waiting.retain(|index| !try_once(&mut clients[*index], spot));
                waiting.is_empty()
            });
        }
        for (host, client) in self.hosts.iter().zip(&clients) {
            for index in 0..LOCKSPACES.len() {
                let code = client.plain().inq_lockspace(&self.site.lockspace(index, client.me.host_id), 0);
                assert_eq!(code, 0, "host {} has lost a lockspace", host.name());
            }
        }
    }
}

/// Acquires, checks and releases.
fn try_once(client: &mut Client, spot: usize) -> bool {
    let names: &[&'static str] = if SPOTS[spot].class == Class::Renamed {
        &[SPOTS[spot].name, OTHER_NAME]
    } else {
        &[SPOTS[spot].name]
    };
    names.iter().any(|name| {
        let valued = SPOTS[spot].class == Class::Valued;
        let flags = if valued { crate::raw::flag::ACQUIRE_LVB } else { 0 };
        let words = match SPOTS[spot].class {
            Class::Renamed => "acquire+renamed",
            Class::Kept => "acquire+kept",
            _ => "acquire",
        };
        let want = Wanted { spot, name, mode: Mode::Exclusive, persistent: false, demand: None };
        if client.acquire(&[want], flags, words) != 0 {
            return false;
        }
        client.check_owners(spot);
        client.release(&[spot], false);
        true
    })
}

/// Whether a client was granted a lease that others ask for, or may have been: it ended before it had the answer.
fn held_asked(stdout: &str) -> bool {
    let mut words = stdout.lines().filter_map(|line| line.split(' ').next());
    words.clone().any(|word| word == ASKED_GRANTED) || words.next_back() == Some(ASKED_BEGUN)
}

#[cfg(test)]
mod tests {
    use super::held_asked;

    #[test]
    fn a_signal_is_for_who_holds_what_others_ask_for() {
        assert!(held_asked("acquire 0 3\nasked-granted 0 0\nrelease 0 1\n"));
        assert!(held_asked("release 0 1\nasked-begun 0 0\n"));
        assert!(!held_asked("asked-begun 0 0\nacquire+asked -243 3\n"));
        assert!(!held_asked(""));
    }
}
