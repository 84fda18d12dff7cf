//! The calm after a state: no more faults. Everybody comes to an end, the dead are known to be dead, and then every host must
//! be able to acquire the lease in a bounded number of steps.

use crate::checks::Property;
use crate::surroundings::Life;
use crate::turn::{SEEN_NEWER, SEEN_SHARED};
use crate::world::{Action, Event, Next, State, World};

/// Steps in which a host on its own has to come to an end.
const STEPS_MAX: u32 = 300;

/// Acquires of which one must be granted: the first may find a value of a former ballot that has to be committed, the second the
/// host it names, which has given it up by flag.
const ACQUIRES_MAX: u32 = 3;

/// How the writes still in flight end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InFlight {
    Land,
    Fail,
}

impl World {
    /// Whether the calm after this state is as it should be.
    ///
    /// # Errors
    /// What it broke, with the way there from this state.
    pub fn calm(&mut self, state: &State) -> Result<(), (Property, Vec<Action>)> {
        for in_flight in [InFlight::Land, InFlight::Fail] {
            let mut calm = Calm { world: self, state: *state, actions: Vec::new() };
            let result = calm.run(in_flight);
            let actions = calm.actions;
            if let Err(property) = result {
                if self.settings.properties.contains(&property) {
                    return Err((property, actions));
                }
            }
        }
        Ok(())
    }
}

struct Calm<'a> {
    world: &'a mut World,
    state: State,
    actions: Vec<Action>,
}

impl Calm<'_> {
    fn act(&mut self, host: usize, event: Event) -> Result<Next, Property> {
        self.act_on(host, (0, 0), event)
    }

    fn act_on(&mut self, host: usize, (disk, nth): (u8, u8), event: Event) -> Result<Next, Property> {
        let action = Action { host: u8::try_from(host).unwrap_or(u8::MAX), disk, nth, event };
        self.actions.push(action);
        let next = self.world.next(&self.state, action);
        self.state = next.state;
        match next.broken.first() {
            Some(property) => Err(*property),
            None => Ok(next),
        }
    }

    fn settle(&mut self, host: usize, in_flight: InFlight) -> Result<(), Property> {
        while !self.world.host(&self.state, host).late.is_empty() {
            let joined = self.state.lives.0[host].0 == Life::Joined;
            match in_flight {
                InFlight::Land => self.act(host, Event::Land(0))?,
                InFlight::Fail if joined => self.act(host, Event::LateFails(0))?,
                // Of a host that is gone nothing lands any more; the bookkeeping ends with KnownDead.
                InFlight::Fail => return Ok(()),
            };
        }
        Ok(())
    }

    /// Lets one host go on alone to its end. Returns what it saw, and whether it was granted the lease.
    fn finish(&mut self, host: usize) -> Result<(u16, bool), Property> {
        let (mut flags, mut granted) = (0, false);
        for _ in 0..STEPS_MAX {
            let h = self.world.host(&self.state, host);
            let running = h.running.iter().find(|r| r.ended.is_none());
            let (on, event) = match (running, h.wait.is_some()) {
                (Some(running), _) => ((running.disk, running.nth), Event::Complete),
                (None, true) => ((0, 0), Event::Wake),
                (None, false) => return Ok((flags, granted)),
            };
            let next = self.act_on(host, on, event)?;
            flags |= next.effects.flags;
            granted |= next.effects.granted.is_some() || next.effects.flags & SEEN_SHARED != 0;
        }
        Err(Property::EverythingEnds)
    }

    fn run(&mut self, in_flight: InFlight) -> Result<(), Property> {
        self.world.marks.calms += 1;
        let hosts = self.world.settings.hosts.len();
        let disks = self.world.settings.disks;
        for (host, disk) in (0..hosts).flat_map(|host| (0..disks).map(move |disk| (host, disk))) {
            if self.world.host(&self.state, host).is_cut_off(disk) {
                self.act_on(host, (disk, 0), Event::PathBack)?;
            }
        }
        for host in 0..hosts {
            self.settle(host, in_flight)?;
        }
        for host in 0..hosts {
            if matches!(self.state.lives.0[host].0, Life::Down | Life::Lost) {
                self.act(host, Event::KnownDead)?;
            }
        }
        for host in 0..hosts {
            self.finish(host)?;
        }
        for host in 0..hosts {
            if matches!(self.state.lives.0[host].0, Life::Dead | Life::Left) {
                self.act(host, Event::Rejoin)?;
                self.finish(host)?;
            }
            if self.world.settings.stale_tables {
                self.act(host, Event::Look)?;
            }
        }
        // Who is refused because of what another may own has its turn after that one had.
        let mut turns: Vec<(usize, Event)> = (0..hosts).map(|host| (host, Event::OnceMore)).collect();
        if self.world.has_sharers() {
            turns.extend((0..hosts).map(|host| (host, Event::ShareOnceMore)));
        }
        let mut refused = Vec::new();
        for (host, event) in turns {
            if !self.acquires(host, event)? {
                self.world.marks.calms_told_newer += 1;
                refused.push((host, event));
            }
        }
        for (host, event) in refused {
            if !self.acquires(host, event)? {
                return Err(Property::Progress);
            }
        }
        Ok(())
    }

    /// Whether the host can have the lease, perhaps after it committed what older ballots left; or is told who is in its way.
    fn acquires(&mut self, host: usize, event: Event) -> Result<bool, Property> {
        for _ in 0..ACQUIRES_MAX {
            self.act(host, event)?;
            let (flags, granted) = self.finish(host)?;
            if granted {
                return Ok(true);
            }
            if flags & SEEN_NEWER != 0 {
                return Ok(false);
            }
        }
        Err(Property::Progress)
    }
}
