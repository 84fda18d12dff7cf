//! A schedule in words.

use crate::HOSTS;
use crate::host::{Host, Pending};
use crate::surroundings::Life;
use crate::world::{Action, Event, World};
use sanlock_lease::machine::Content;

impl World {
    /// What the actions of a schedule do, a line each, from the beginning.
    pub fn narrate(&mut self, schedule: &[Action]) -> String {
        let mut text = String::new();
        let mut state = self.begin();
        for action in schedule {
            let index = usize::from(action.host);
            let what = self.what(self.host(&state, index), action);
            let next = self.next(&state, *action);
            let granted = if next.effects.granted.is_some() { " => GRANTED" } else { "" };
            let broken = next.broken.first().map(|p| format!(" => BROKEN {p:?}")).unwrap_or_default();
            text.push_str(&format!("host {}: {what}{granted}{broken}\n", index + 1));
            state = next.state;
        }
        let disks = self.settings.disks;
        for (number, disk) in self.disks(&state).iter().enumerate().take(usize::from(disks)) {
            let place = if disks > 1 { format!("disk {}, ", number + 1) } else { String::new() };
            text.push_str(&format!("{place}leader on disk: {:?}\n", self.contents.leader(disk.leader)));
            for (index, block) in disk.blocks.iter().enumerate() {
                text.push_str(&format!("{place}block of host {}: {}\n", index + 1, self.content(*block)));
            }
        }
        for index in 0..self.settings.hosts.len() {
            let (life, generation) = state.lives.0[index];
            let host = self.host(&state, index);
            let holds = match (host.holding, host.sharing) {
                (Some(_), _) => ", holds the lease",
                (None, Some(_)) => ", shares the lease",
                (None, None) => "",
            };
            let alive = if life == Life::Joined { "" } else { " (not joined)" };
            text.push_str(&format!("host {}: generation {generation}{alive}{holds}\n", index + 1));
        }
        text
    }

    /// The version of the leader, and of each host's block, after a schedule.
    pub fn versions_after(&mut self, schedule: &[Action]) -> (u64, [u64; HOSTS]) {
        let mut state = self.begin();
        for action in schedule {
            state = self.next(&state, *action).state;
        }
        let disk = self.disks(&state)[0];
        let leader = self.contents.leader(disk.leader).lver.get();
        (leader, disk.blocks.map(|block| self.contents.block(block).dblock.lver.get()))
    }

    fn content(&self, content: u32) -> String {
        match self.contents.content(content) {
            Content::Leader(l) => format!(
                "leader version {} owner {}/{}/{} writer {}",
                l.lver, l.owner_id, l.owner_generation, l.timestamp, l.write_id
            ),
            Content::Block(b) => {
                let d = b.dblock;
                let flag = if d.is_released() { " RELEASED" } else { "" };
                let mode = b.mode;
                let shared =
                    if mode.is_shared() { format!(" SHARED {}", mode.generation) } else { String::new() };
                format!(
                    "block version {} mbal {} bal {} value {}/{}/{}{flag}{shared}",
                    d.lver, d.mbal, d.bal, d.inp, d.inp2, d.inp3
                )
            }
            Content::Value(_) => "value block".into(),
            Content::Delta { .. } => "delta".into(),
        }
    }

    fn what(&self, host: &Host, action: &Action) -> String {
        let Action { disk, nth, event, .. } = *action;
        let place = if self.settings.disks > 1 { format!(" on disk {}", disk + 1) } else { String::new() };
        let pending = match host.pending(disk, nth) {
            Some(Pending::Read { first, count: 1, .. }) => format!("read of sector {first}{place}"),
            Some(Pending::Read { .. }) => format!("read of leader and blocks{place}"),
            Some(Pending::ReadDelta { host }) => {
                format!("read of the host id lease of host {}", host + 1)
            }
            Some(Pending::Write { content, .. }) => format!("write of {}{place}", self.content(content)),
            None => "nothing".into(),
        };
        let late = |which: u8| {
            let late = host.late.get(usize::from(which));
            let place =
                |disk| if self.settings.disks > 1 { format!(" on disk {}", disk + 1) } else { String::new() };
            late.map(|l| format!("{}{}", self.content(l.content), place(l.disk))).unwrap_or_default()
        };
        match event {
            Event::Complete => pending,
            Event::Peek(0) => "looks at the leader already".into(),
            Event::Peek(part) => format!("looks at the block of host {part} already"),
            Event::TimeOut => format!("TIMES OUT: {pending}"),
            Event::FailLanded => format!("FAILS, but landed: {pending}"),
            Event::Fail => format!("FAILS: {pending}"),
            Event::Land(which) => format!("LANDS LATE: {}", late(which)),
            Event::LateFails(which) => format!("late write fails for good: {}", late(which)),
            Event::Wake => "wakes".into(),
            Event::Crash => "CRASHES".into(),
            Event::Lose => "its LOCKSPACE FAILS".into(),
            Event::JoinAnew => "its lockspace is REMOVED AND JOINED AGAIN".into(),
            Event::KnownDead => "is KNOWN TO BE DEAD".into(),
            Event::Rejoin => "comes BACK with a new generation".into(),
            Event::LosePath => format!("LOSES THE PATH to disk {}", disk + 1),
            Event::PathBack => format!("reaches disk {} again", disk + 1),
            Event::GiveUp => "gives its lease up, which has not settled".into(),
            Event::OwnBlock => "looks at its own block already".into(),
            Event::Look => "looks at the other hosts".into(),
            Event::Leave => "LEAVES".into(),
            Event::OnceMore => "acquires once more".into(),
            Event::ShareOnceMore => "shares once more".into(),
        }
    }
}
