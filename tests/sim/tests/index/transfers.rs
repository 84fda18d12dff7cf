//! Transfers between hosts and the disk: when their pieces are carried out, and how they end.

use crate::checks;
use crate::disk::{Disk, SECTOR};
use crate::work::For;
use crate::world::{AREA, BASE, Event, Met, Ms, SLOTS, World, io_timeout};
use sanlock_lease::machine::IoFailure;
use sanlock_lease::rindex::RindexCommand;
use sanlock_lease::timing::WatchdogFire;

#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) host: usize,
    pub(crate) whose: For,
    /// First sector and number of sectors on the disk.
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// What is written; nothing for a read.
    pub(crate) bytes: Option<Vec<u8>>,
    /// The command that it is for.
    command: RindexCommand,
    /// Sectors of each piece that was not carried out yet.
    pieces: Vec<Option<(u64, u64)>>,
    /// What was read.
    pub(crate) read: Disk,
    /// How it will end.
    fails: bool,
    /// The submitter waits no more.
    pub(crate) late: bool,
    /// It has ended, and what was not carried out may be all the same.
    doubtful: bool,
}

/// How a transfer ends that fails.
pub(crate) const EIO: IoFailure = IoFailure::Os(5);

impl World {
    /// Submits it, with a limit in milliseconds.
    pub(crate) fn submit(
        &mut self,
        host: usize,
        whose: For,
        (first, count): (u64, u64),
        bytes: Option<Vec<u8>>,
        limit: Ms,
    ) {
        let Some(command) = self.hosts[host].work.as_ref().map(|work| work.command) else { return };
        let calm = self.calm();
        let slow = !calm && self.dice.per_mille(self.slow);
        let took = if slow { self.dice.spread(500, 40_000) } else { self.dice.spread(1, 40) };
        let hangs = self.hosts[host].cut_until.saturating_sub(self.now);
        let fails = !calm && self.dice.per_mille(self.failing);
        let number = self.number();
        let pieces = self.cut_up(first, count);
        for piece in 0..pieces.len() {
            let at = hangs + self.dice.between(0, took);
            // What fails is carried out, or not, in each of its pieces.
            if !fails || self.dice.per_mille(500) {
                self.plan(at, Event::Piece { transfer: number, piece });
            }
        }
        self.plan(hangs + took, Event::End { transfer: number });
        self.plan(limit, Event::Limit { transfer: number });
        let transfer = Transfer {
            host,
            whose,
            first,
            count,
            bytes,
            command,
            pieces,
            read: Disk::default(),
            fails,
            late: false,
            doubtful: false,
        };
        self.transfers.insert(number, transfer);
    }

    fn cut_up(&mut self, first: u64, count: u64) -> Vec<Option<(u64, u64)>> {
        let mut cuts = [0, self.dice.between(0, count), self.dice.between(0, count), count];
        cuts.sort_unstable();
        let pieces = cuts.windows(2).filter(|cut| cut[0] < cut[1]);
        pieces.map(|cut| Some((first + cut[0], cut[1] - cut[0]))).collect()
    }

    /// Carries a piece out.
    pub(crate) fn piece(&mut self, number: u64, piece: usize) {
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        let Some((first, count)) = transfer.pieces[piece].take() else { return };
        let Some(bytes) = &transfer.bytes else {
            return self.disk.sample(first, count, &mut transfer.read);
        };
        let from = usize::try_from(first - transfer.first).unwrap() * SECTOR;
        let bytes = bytes[from..from + usize::try_from(count).unwrap() * SECTOR].to_vec();
        let (host, command) = (transfer.host, transfer.command);
        self.land(host, command, first, &bytes);
    }

    fn land(&mut self, host: usize, command: RindexCommand, first: u64, bytes: &[u8]) {
        let before = self.names();
        for slot in 0..SLOTS {
            let area = checks::area(slot) / SECTOR as u64;
            if first < area + AREA / SECTOR as u64 && first + (bytes.len() / SECTOR) as u64 > area {
                self.checks.area_written(host, slot, &self.disk);
            }
        }
        self.disk.land(first, bytes);
        if first >= BASE / SECTOR as u64 {
            let after = self.names();
            if first < (BASE + AREA) / SECTOR as u64 {
                self.note(|| format!("host {host} changes the index to {after:?}"));
                self.checks.changed(host, command, &before, &after);
                for work in self.hosts.iter_mut().filter_map(|host| host.work.as_mut()) {
                    work.since.push(after);
                }
            }
            self.checks.look(&self.disk);
        }
    }

    /// The host is gone: what was not carried out is now, or never.
    pub(crate) fn abandon(&mut self, number: u64) {
        let pieces =
            self.transfers.get(&number).map_or(0, |t| if t.bytes.is_some() { t.pieces.len() } else { 0 });
        for piece in 0..pieces {
            if self.dice.per_mille(500) {
                self.piece(number, piece);
            }
        }
        self.transfers.remove(&number);
    }

    /// It has ended; its submitter hears of it. A write that failed may be carried out later in any of its pieces, until it has been in doubt
    /// for long enough.
    pub(crate) fn ended(&mut self, number: u64) {
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        if transfer.fails && transfer.bytes.is_some() && !transfer.doubtful {
            transfer.doubtful = true;
            let late = std::mem::replace(&mut transfer.late, true);
            let (host, whose) = (transfer.host, transfer.whose);
            let left: Vec<usize> =
                (0..transfer.pieces.len()).filter(|piece| transfer.pieces[*piece].is_some()).collect();
            let doubt = io_timeout().doubt_ms(WatchdogFire::DEFAULT);
            for piece in left {
                if self.dice.per_mille(500) {
                    self.met(Met::Doubtful);
                    let at = self.dice.between(0, doubt - 1);
                    self.plan(at, Event::Piece { transfer: number, piece });
                }
            }
            self.plan(doubt, Event::End { transfer: number });
            return self.doubted(host, whose, late);
        }
        let Some(transfer) = self.transfers.remove(&number) else { return };
        let result = if transfer.fails { Err(EIO) } else { Ok(()) };
        self.heard(&transfer, result);
    }

    /// Its submitter waits no more, but it goes on.
    pub(crate) fn limit(&mut self, number: u64) {
        let Some(transfer) = self.transfers.get_mut(&number).filter(|transfer| !transfer.late) else {
            return;
        };
        transfer.late = true;
        let (host, whose, write) = (transfer.host, transfer.whose, transfer.bytes.is_some());
        if write {
            self.met(Met::LateWrite);
        }
        self.timed_out(host, whose, write);
    }
}
