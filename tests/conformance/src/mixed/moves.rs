//! What a client does next: random operations, none that the programs cannot be asked for together (see [`super::site::Class`]).

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use super::client::{Client, Wanted};
use super::proof::Mode;
use super::site::{Class, LOCKSPACES, OTHER_NAME, SPOTS};
use crate::dice::Dice;
use crate::raw::{Connection, HEADER_LEN, Header, Lockspace, SELF, acquire_payload, cmd, flag};

/// Leases a client holds at most.
const MOST: usize = 3;
/// Longest pause between two operations, with and without leases, in milliseconds.
const PAUSES_MS: (u64, u64) = (40, 120);
/// A stream of events is looked at for so long; most are empty.
const GLANCE: Duration = Duration::from_millis(1);
/// `event` of the run: this times the sender, and a number below it.
const EVENTS: u64 = 1000;
/// `data` belongs to `event`: this times it.
const DATA: u64 = 0x0101_0101;

/// A client that decides by dice.
#[derive(Debug)]
pub struct Player {
    client: Client,
    dice: Dice,
    renamer: bool,
    stream: Option<(usize, Connection)>,
}

impl Player {
    /// A client; `renamer`: the one of its host that uses the resource whose name changes, and nothing else.
    #[must_use]
    pub fn new(client: Client, dice: Dice, renamer: bool) -> Self {
        Self { client, dice, renamer, stream: None }
    }

    /// Plays until `end`, and gives everything back.
    ///
    /// # Panics
    /// As the operations.
    pub fn play(&mut self, end: Instant) {
        while Instant::now() < end {
            if self.renamer {
                self.rename_move();
            } else {
                self.any_move();
            }
            let pause = if self.client.held.is_empty() { PAUSES_MS.1 } else { PAUSES_MS.0 };
            self.dice.pause(pause);
        }
        self.release_all();
    }

    fn release_all(&mut self) {
        let spots: Vec<usize> = self.client.held.iter().map(|held| held.spot).collect();
        if !spots.is_empty() {
            self.client.release(&spots, false);
        }
    }

    fn any_move(&mut self) {
        match self.dice.below(100) {
            0..36 if self.client.held.len() < MOST => self.acquire_one(),
            36..42 if self.client.held.is_empty() => self.acquire_some(),
            // Others wait: more often than not something is given back.
            0..56 => self.release_some(),
            56..68 => self.convert(),
            68..78 => self.value(),
            78..83 => {
                let spot = self.any_spot();
                self.client.check_owners(spot);
            }
            83..86 => self.read(),
            86..89 => self.event(),
            89..91 => self.listen(),
            91..93 => self.ask(),
            93..96 => self.orphans(),
            96..98 => self.client.hang_up(None),
            _ => self.hang_up_busy(),
        }
    }

    /// Any resource this client may deal with.
    fn any_spot(&mut self) -> usize {
        let spots: Vec<usize> =
            (0..SPOTS.len()).filter(|spot| SPOTS[*spot].class != Class::Renamed).collect();
        self.dice.one_of(&spots)
    }

    fn wanted(&mut self, spot: usize) -> Wanted {
        let exclusive = SPOTS[spot].class == Class::Asked || self.dice.chance(55);
        let mode = if exclusive { Mode::Exclusive } else { Mode::Shared };
        Wanted { spot, name: SPOTS[spot].name, mode, persistent: false, demand: None }
    }

    fn acquire_one(&mut self) {
        let spot = self.any_spot();
        if self.client.hold_on(spot).is_some() {
            return;
        }
        let mut want = self.wanted(spot);
        let mut words = String::from(if want.mode == Mode::Shared { "acquire+shared" } else { "acquire" });
        let mut flags = 0;
        if self.dice.chance(30) {
            flags |= flag::ACQUIRE_OWNER_NOWAIT;
            words += "+nowait";
        }
        if SPOTS[spot].class == Class::Valued {
            flags |= flag::ACQUIRE_LVB;
            words += "+value";
        }
        if SPOTS[spot].class == Class::Kept {
            words += "+kept";
            self.keep(&mut want, &mut flags, &mut words);
        } else if want.mode == Mode::Exclusive && self.dice.chance(15) {
            let resource = self.client.site.resource(&SPOTS[spot], want.name);
            let (result, found) = self.client.connection().read_resource(&resource);
            assert_eq!(result, 0, "UNEXPECTED: {}: read of {resource:?}", self.client.me.label);
            if found.lver != 0 {
                want.demand = Some(found.lver);
                words += "+version";
            }
        }
        let granted = self.client.acquire(&[want], flags, &words) == 0;
        let alone = want.mode == Mode::Exclusive;
        if granted && alone && SPOTS[spot].class == Class::Valued && self.dice.chance(70) {
            self.client.set_value(spot, true);
        }
    }

    /// Persistent, and orphans.
    fn keep(&mut self, want: &mut Wanted, flags: &mut u32, words: &mut String) {
        want.persistent = self.dice.chance(60);
        match self.dice.below(10) {
            0..5 => {}
            5..9 => {
                *flags |= flag::ACQUIRE_ORPHAN;
                *words += "+orphan";
            }
            _ => {
                *flags |= flag::ACQUIRE_ORPHAN_ONLY;
                *words += "+orphan-only";
            }
        }
        if want.persistent {
            *words += "+persistent";
        } else if *flags & (flag::ACQUIRE_ORPHAN | flag::ACQUIRE_ORPHAN_ONLY) != 0 {
            // Adopted without PERSISTENT it goes with this client, which may die before it can say so.
            let _ = self.client.keep_no_more(want.spot);
        }
    }

    fn acquire_some(&mut self) {
        let mut spots: Vec<usize> = (0..SPOTS.len()).filter(|spot| SPOTS[*spot].in_company()).collect();
        let count = 2 + self.dice.below(2);
        let mut wanted = Vec::new();
        for _ in 0..count {
            let spot = self.dice.one_of(&spots);
            spots.retain(|other| *other != spot);
            wanted.push(self.wanted(spot));
        }
        let values = wanted.iter().any(|want| SPOTS[want.spot].class == Class::Valued);
        let flags = if values { flag::ACQUIRE_LVB } else { 0 };
        let shared = wanted.iter().any(|want| want.mode == Mode::Shared);
        let words = if shared { "acquire+several+shared" } else { "acquire+several" };
        let _ = self.client.acquire(&wanted, flags, words);
    }

    fn release_some(&mut self) {
        match self.client.held.len() {
            0 => {}
            1 => self.release_all(),
            _ if self.dice.chance(30) => self.release_all(),
            _ => {
                let spot = self.a_lease();
                self.client.release(&[spot], false);
            }
        }
    }

    /// One of the leases held; there must be one.
    fn a_lease(&mut self) -> usize {
        let spots: Vec<usize> = self.client.held.iter().map(|held| held.spot).collect();
        self.dice.one_of(&spots)
    }

    fn convert(&mut self) {
        if self.client.held.is_empty() {
            return;
        }
        let spot = self.a_lease();
        let Some(held) = self.client.hold_on(spot) else { return };
        if !SPOTS[spot].convertible(self.client.me.program) {
            return;
        }
        let mode = match held.mode {
            Mode::Exclusive => Mode::Shared,
            Mode::Shared => Mode::Exclusive,
        };
        let nowait = self.dice.chance(30);
        let _ = self.client.convert(spot, mode, nowait);
    }

    fn value(&mut self) {
        let valued =
            self.client.held.iter().find(|held| held.valued && SPOTS[held.spot].class == Class::Valued);
        let Some(held) = valued.copied() else { return };
        // A shared holder must not: what it sets is lost (W31).
        if held.mode == Mode::Exclusive && self.dice.chance(80) {
            let wait = !self.dice.chance(5);
            self.client.set_value(held.spot, wait);
        } else {
            self.client.check_value(held.spot);
        }
    }

    fn read(&mut self) {
        let spot = self.any_spot();
        let resource = self.client.site.resource(&SPOTS[spot], SPOTS[spot].name);
        let begun = Instant::now();
        let (result, _) = self.client.connection().read_resource(&resource);
        self.client.judge("read", result, begun);
        let begun = Instant::now();
        let (result, hosts) = self.client.plain().get_hosts(LOCKSPACES[SPOTS[spot].lockspace].0, 0);
        self.client.judge("get-hosts", result, begun);
        assert!(
            hosts.len() as u64 == super::HOSTS && hosts.iter().all(|host| host.flags & 0xf == 3),
            "HOSTS: {} is told {hosts:?}",
            self.client.me.label
        );
    }

    /// Sets an event for another host.
    fn event(&mut self) {
        let me = self.client.me.host_id;
        let lockspace = LOCKSPACES[self.dice.one_of(&[0, 1])].0;
        let event = me * EVENTS + self.dice.below(EVENTS);
        let host = 1 + (me + self.dice.below(super::HOSTS - 1)) % super::HOSTS;
        let mut flags = if self.dice.chance(50) { flag::SETEV_CUR_GENERATION } else { 0 };
        if self.dice.chance(50) {
            flags |= flag::SETEV_REPLACE;
        }
        if self.dice.chance(5) {
            flags = flag::SETEV_CLEAR_EVENT;
        }
        let mut payload = Lockspace::new(lockspace, 0, "", 0).encode();
        for field in [host, 0, event, event * DATA] {
            payload.extend(field.to_le_bytes());
        }
        let begun = Instant::now();
        let code = self.client.plain().request(cmd::SET_EVENT, flags, 0, 0, &payload).result();
        self.client.judge("set-event", code, begun);
    }

    /// Opens a stream of events, reads what has come, or closes it.
    fn listen(&mut self) {
        let Some((lockspace, mut stream)) = self.stream.take() else {
            let lockspace = self.dice.one_of(&[0, 1]);
            let mut stream = self.client.plain();
            let mut payload = Lockspace::new(LOCKSPACES[lockspace].0, 0, "", 0).encode();
            payload.extend([0; 32]);
            let begun = Instant::now();
            let code = stream.request(cmd::REG_EVENT, 0, 0, 0, &payload).result();
            self.client.judge("reg-event", code, begun);
            stream.set_limit(GLANCE);
            self.stream = Some((lockspace, stream));
            return;
        };
        let mut message = [0; 80];
        loop {
            let mut socket = stream.stream();
            match socket.read(&mut message) {
                // Messages are written whole, and fit the socket's buffer.
                Ok(80) => self.client.judge_event(&message),
                Ok(length) => panic!("UNEXPECTED: {}: {length} bytes of an event", self.client.me.label),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(error) => panic!("UNEXPECTED: {}: stream of events: {error}", self.client.me.label),
            }
        }
        if self.dice.chance(70) {
            self.stream = Some((lockspace, stream));
            return;
        }
        stream.send(&1_u32.to_le_bytes());
        drop(stream);
        let payload = Lockspace::new(LOCKSPACES[lockspace].0, 0, "", 0).encode();
        let begun = Instant::now();
        let code = self.client.plain().request(cmd::END_EVENT, 0, 0, 0, &payload).result();
        self.client.judge("end-event", code, begun);
    }

    /// Asks the holder of a lease to let go, and the daemons to look.
    fn ask(&mut self) {
        let asked: Vec<usize> = (0..SPOTS.len()).filter(|spot| SPOTS[*spot].class == Class::Asked).collect();
        let spot = self.dice.one_of(&asked);
        let mut resource = self.client.site.resource(&SPOTS[spot], SPOTS[spot].name);
        let force = self.dice.one_of(&[1, 2]);
        let mut flags = flag::NEXT_LVER;
        if self.dice.chance(30) {
            flags = 0;
            let (result, found) = self.client.connection().read_resource(&resource);
            assert_eq!(result, 0, "UNEXPECTED: {}: read of {resource:?}", self.client.me.label);
            resource = resource.with_lver(found.lver + 1);
        }
        let begun = Instant::now();
        let reply = self.client.connection().request(cmd::REQUEST, flags, force, 0, &resource.encode());
        self.client.judge("request", reply.result(), begun);
        let begun = Instant::now();
        let code = if self.dice.chance(50) {
            let bytes = resource.encode_bare();
            self.client.connection().request(cmd::EXAMINE_RESOURCE, 0, 0, 0, &bytes).result()
        } else {
            let bytes = self.client.site.lockspace(SPOTS[spot].lockspace, 0).encode();
            self.client.connection().request(cmd::EXAMINE_LOCKSPACE, 0, 0, 0, &bytes).result()
        };
        self.client.judge("examine", code, begun);
    }

    fn orphans(&mut self) {
        let kept: Vec<usize> = (0..SPOTS.len()).filter(|spot| SPOTS[*spot].class == Class::Kept).collect();
        let spot = self.dice.one_of(&kept);
        let by_name = self.dice.chance(70);
        self.client.release_orphan(spot, by_name);
    }

    /// Hangs up right after sending a command.
    fn hang_up_busy(&mut self) {
        let free: Vec<usize> = (0..SPOTS.len())
            .filter(|spot| SPOTS[*spot].class != Class::Renamed && self.client.hold_on(*spot).is_none())
            .collect();
        let last = if self.client.held.is_empty() || self.dice.chance(50) {
            let spot = self.dice.one_of(&free);
            let mut resource = self.client.site.resource(&SPOTS[spot], SPOTS[spot].name);
            if SPOTS[spot].class == Class::Kept {
                resource.flags |= flag::RES_PERSISTENT;
            }
            let (count, payload) = acquire_payload(&[resource]);
            (Header { data: count, data2: SELF, ..Header::request(cmd::ACQUIRE, payload.len()) }, payload)
        } else {
            let spot = self.a_lease();
            let Some(held) = self.client.hold_on(spot) else { return };
            self.client.letting_go(&[held]);
            let bytes = self.client.site.resource(&SPOTS[spot], held.name).encode_bare();
            // The original would grant the conversion beside whoever shares the lease next (CE5).
            let convertible = SPOTS[spot].convertible(self.client.me.program)
                && !(held.mode == Mode::Shared && SPOTS[spot].needs_baton(self.client.me.program));
            if self.dice.chance(50) || !convertible {
                (Header { data: 1, data2: SELF, ..Header::request(cmd::RELEASE, bytes.len()) }, bytes)
            } else {
                let bytes = match held.mode {
                    Mode::Shared => bytes,
                    Mode::Exclusive => {
                        self.client.site.resource(&SPOTS[spot], held.name).shared().encode_bare()
                    }
                };
                (Header { data2: SELF, ..Header::request(cmd::CONVERT, bytes.len()) }, bytes)
            }
        };
        self.client.hang_up(Some(last));
    }

    /// The resource whose name changes, under the name it has or the other one.
    fn rename_move(&mut self) {
        let Some(spot) = SPOTS.iter().position(|spot| spot.class == Class::Renamed) else { return };
        match self.client.hold_on(spot) {
            None => {
                let name = self.dice.one_of(&[SPOTS[spot].name, OTHER_NAME]);
                let want = Wanted { spot, name, mode: Mode::Exclusive, persistent: false, demand: None };
                let _ = self.client.acquire(&[want], 0, "acquire+renamed");
            }
            Some(_) if self.dice.chance(20) => self.client.check_owners(spot),
            Some(_) if self.dice.chance(5) => self.client.hang_up(None),
            Some(_) => {
                let rename = self.dice.chance(60);
                self.client.release(&[spot], rename);
            }
        }
    }
}

impl Client {
    /// An event must be for this host, from another one, and one that host sets.
    fn judge_event(&self, message: &[u8; 80]) {
        let field = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&message[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let (host, event, data, from) = (field(HEADER_LEN), field(48), field(56), field(64));
        assert!(
            host == self.me.host_id && from != host && event / EVENTS == from && data == event * DATA,
            "EVENT: {}: for {host} from {from}: {event} with {data}",
            self.me.label
        );
        println!("event 0 0");
    }
}
