//! Carries faults out, one after the other, and logs each. Everything it breaks it heals.

use std::time::Duration;

use anyhow::Context as _;
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::sleep;

use crate::evidence::{self, Failover, Log, now};
use crate::plan::{Fault, Link, Step};
use crate::postgres::Postgres;
use crate::proxy::{Mode, Proxy};
use crate::receiver::{Mood, Receiver};
use crate::relay::{Relay, Settings};
use crate::servers::{Kafka, local, signal};
use crate::topic;

/// Longer than the lease (4 s) and the session (6 s).
const PAUSE: Duration = Duration::from_millis(7_500);
const DISTURBED: Duration = Duration::from_millis(3_500);
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// Everything that can be broken.
pub struct World {
    pub settings: Settings,
    pub relays: Vec<Relay>,
    pub kafka: Kafka,
    pub primary: Postgres,
    pub standby: Option<Postgres>,
    pub receiver: Receiver,
    pub kafka_proxy: Proxy,
    pub postgres_proxy: Proxy,
    pub receiver_proxy: Proxy,
    /// Between primary and standby: what it holds back is lost in a failover.
    pub replication: Proxy,
    pub partitions: i32,
    pub failovers: Vec<Failover>,
    pub log: Log,
    pub samples: Log,
    /// The standby has every commit before it is answered.
    pub synchronous: bool,
    /// How many days the database is ahead: as many failovers came at midnight.
    pub midnights: u32,
    /// Relays so far, for their names.
    pub started: u32,
    /// Those that ended without having been told to.
    pub exits: u32,
}

impl World {
    fn note(&self, fault: Fault, target: &str, phase: &str) {
        self.log.write(&evidence::Fault {
            at: now(),
            fault: fault.name(),
            target: target.to_owned(),
            phase: phase.to_owned(),
        });
    }

    pub fn start_relay(&mut self) -> anyhow::Result<()> {
        self.started += 1;
        self.relays.push(Relay::start(&self.settings, &format!("relay-{}", self.started))?);
        Ok(())
    }

    /// As a supervisor does: one that ended by itself is started again.
    fn supervise(&mut self) -> anyhow::Result<()> {
        for relay in &mut self.relays {
            if !relay.is_alive() {
                self.exits += 1;
                relay.run(&self.settings)?;
            }
        }
        Ok(())
    }

    fn proxy(&self, link: Link) -> &Proxy {
        match link {
            Link::Kafka => &self.kafka_proxy,
            Link::Postgres => &self.postgres_proxy,
            Link::Receiver => &self.receiver_proxy,
        }
    }

    pub async fn suffer(&mut self, step: Step, random: &mut StdRng) -> anyhow::Result<()> {
        self.supervise()?;
        self.relays.iter().filter_map(Relay::sample).for_each(|sample| self.samples.write(&sample));
        let fault = step.fault;
        let victim = random.random_range(0..self.relays.len());
        let name = self.relays[victim].name.clone();
        match fault {
            Fault::KillRelay => {
                self.note(fault, &name, "once");
                self.relays[victim].kill();
                self.relays[victim].run(&self.settings)?;
            }
            Fault::PauseRelay => {
                self.note(fault, &name, "begin");
                self.relays[victim].signal("STOP");
                sleep(PAUSE).await;
                self.relays[victim].signal("CONT");
                self.note(fault, &name, "end");
            }
            Fault::RollingRestart => self.rolling_restart(fault).await?,
            Fault::Reload => {
                self.note(fault, &name, "once");
                self.relays[victim].reload(random.random_range(1..1_000_000))?;
            }
            Fault::Rebalance => {
                self.note(fault, "one more", "begin");
                self.start_relay()?;
                sleep(Duration::from_millis(2_500)).await;
                let mut guest = self.relays.pop().context("it was just started")?;
                tokio::task::spawn_blocking(move || guest.stop(STOP_LIMIT)).await??;
                self.note(fault, "one more", "end");
            }
            Fault::KillBackend => {
                let backends = self.primary.processes("oncebox");
                if let Some(backend) = backends.get(random.random_range(0..backends.len().max(1))) {
                    self.note(fault, &backend.to_string(), "once");
                    signal(*backend, "KILL");
                }
                sleep(Duration::from_secs(1)).await;
            }
            Fault::CrashPostgres => {
                self.note(fault, "primary", "begin");
                self.primary.kill();
                sleep(Duration::from_millis(random.random_range(0..1_500))).await;
                self.primary.run()?;
                self.note(fault, "primary", "end");
            }
            Fault::KillBroker => {
                self.note(fault, "broker", "begin");
                self.kafka.kill();
                self.kafka.run()?;
                self.note(fault, "broker", "end");
            }
            Fault::PauseBroker => {
                self.note(fault, "broker", "begin");
                signal(self.kafka.pid(), "STOP");
                sleep(PAUSE).await;
                signal(self.kafka.pid(), "CONT");
                self.note(fault, "broker", "end");
            }
            Fault::AddPartition => {
                self.note(fault, &self.settings.topic, "once");
                self.partitions += 2;
                topic::grow(&self.settings.brokers, &self.settings.topic, self.partitions).await?;
            }
            Fault::Failover => {
                // At midnight what is stored again is filed under another day than what was lost; else under the same.
                self.midnights += u32::from(random.random_bool(0.5));
                self.fail_over(fault).await?;
            }
            Fault::Cut(link) => {
                self.note(fault, &format!("{link:?}"), "once");
                self.proxy(link).cut();
            }
            Fault::Disturb(link, mode) => {
                self.note(fault, &format!("{link:?}"), "begin");
                self.proxy(link).set(mode);
                sleep(DISTURBED).await;
                // What was swallowed is lost with its connection.
                if mode != Mode::Slow {
                    self.proxy(link).cut();
                }
                self.proxy(link).set(Mode::Pass);
                self.note(fault, &format!("{link:?}"), "end");
            }
            Fault::Mood(mood) => {
                self.note(fault, "receiver", "begin");
                self.receiver.set(mood);
                sleep(DISTURBED).await;
                self.receiver.set(Mood::Fair);
                self.note(fault, "receiver", "end");
            }
        }
        sleep(step.rest).await;
        Ok(())
    }

    /// As a deployment does it: the next one is there before the last one goes.
    async fn rolling_restart(&mut self, fault: Fault) -> anyhow::Result<()> {
        self.note(fault, "all", "begin");
        for _ in 0..self.relays.len() {
            self.start_relay()?;
            sleep(Duration::from_millis(1_500)).await;
            let mut old = self.relays.remove(0);
            tokio::task::spawn_blocking(move || old.stop(STOP_LIMIT)).await??;
        }
        self.note(fault, "all", "end");
        Ok(())
    }

    /// Every commit waits for the standby from now on, if that is how it is to be.
    pub async fn synchronise(&self) -> anyhow::Result<()> {
        if self.synchronous {
            let client = self.primary.client().await?;
            client.batch_execute("alter system set synchronous_standby_names = '*'").await?;
            client.batch_execute("select pg_reload_conf()").await?;
        }
        Ok(())
    }

    /// The standby hears nothing for a while, the primary dies, the standby takes over without what it did not hear. One
    /// that is synchronous has heard all that anybody was told is committed.
    async fn fail_over(&mut self, fault: Fault) -> anyhow::Result<()> {
        let standby = self.standby.take().context("there is a standby")?;
        self.note(fault, "primary", "begin");
        if !self.synchronous {
            self.replication.set(Mode::BlackHole);
            sleep(Duration::from_millis(2_500)).await;
        }
        self.primary.kill();
        self.replication.cut();
        // It may have been behind already, after an earlier crash: it knows itself how far it came.
        let query = "select (extract(epoch from pg_last_xact_replay_timestamp()) * 1000)::bigint";
        let lost_from = standby.client().await?.query_one(query, &[]).await?.get::<_, Option<i64>>(0).unwrap_or(0);
        standby.promote()?;
        self.set_date(&standby).await?;
        self.postgres_proxy.redirect(local(standby.port));
        if !self.synchronous {
            self.failovers.push(Failover { lost_from, promoted: now() });
        }
        self.primary = standby;
        self.note(fault, "primary", "end");
        self.replication.redirect(local(self.primary.port));
        self.replication.set(Mode::Pass);
        let data = self.settings.folder.join(format!("postgres-{}", self.primary.port));
        self.standby = Some(self.primary.standby(&data, self.replication.address.port())?);
        self.synchronise().await
    }

    /// Lets a server believe that it is so many days later, before anybody has written to it.
    async fn set_date(&self, server: &Postgres) -> anyhow::Result<()> {
        let days = self.midnights;
        let today = format!(
            "create or replace function oncebox.today() returns date language sql volatile as
             $$ select timezone('utc', clock_timestamp())::date + {days} $$"
        );
        server.client().await?.batch_execute(&today).await.context("setting the date")
    }

    /// Nothing is broken any more.
    pub fn heal(&mut self) -> anyhow::Result<()> {
        for proxy in [&self.kafka_proxy, &self.postgres_proxy, &self.receiver_proxy] {
            proxy.set(Mode::Pass);
        }
        self.receiver.set(Mood::Fair);
        for relay in &self.relays {
            relay.signal("CONT");
        }
        self.supervise()
    }
}
