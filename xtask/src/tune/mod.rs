//! `cargo xtask tune`: shows, sets and takes back what a host's kernel needs for the gateway.
//!
//! It changes nothing unless asked to `apply` or `revert`, and then as root only. Invariant: after `revert` every setting
//! and file that `apply` changed is as it was before, to the byte, unless somebody else has changed it since.

mod apply;
mod catalogue;
mod files;
mod journal;
mod limits;
mod plan;
mod profile;
mod queues;
mod revert;
mod rule;
mod table;

#[cfg(test)]
mod tests;

use std::{
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use clap::{Args, Subcommand, ValueEnum};

use crate::{
    failure::{Failure, Outcome},
    shell::say,
};
use files::{Disk, Files};
use plan::{Change, LIMITS_FILE, Row, SYSCTL_FILE, State};
use revert::Step;

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Tune {
    /// Show each setting: what it is, what is wanted, why, what it does not do, and where to read about it
    Show {
        #[command(flatten)]
        choice: Choice,
        /// The table without the reasons
        #[arg(long)]
        short: bool,
    },
    /// Set what the profile wants, now and at each boot (as root)
    Apply {
        #[command(flatten)]
        choice: Choice,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Restore what was there before apply (as root)
    Revert {
        #[command(flatten)]
        tree: Tree,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
}

/// Which settings, of which machine.
#[derive(Args)]
pub(crate) struct Choice {
    /// A file of `tuning/`
    #[arg(long, value_enum, default_value = "gpu-node")]
    profile: Name,
    #[command(flatten)]
    tree: Tree,
}

/// Whose files.
#[derive(Args)]
pub(crate) struct Tree {
    /// Look at and change the files below this folder instead of the machine's own
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    root: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// A machine that serves models from its own GPUs, in a data centre
    GpuNode,
    /// A machine that clients reach over long paths
    Edge,
    /// A developer's machine, with the load test on it
    Dev,
}

impl Name {
    fn text(self) -> &'static str {
        match self {
            Self::GpuNode => "gpu-node",
            Self::Edge => "edge",
            Self::Dev => "dev",
        }
    }
}

/// Does it. `repository` has the profiles.
pub(crate) fn tune(repository: &Path, tune: &Tune) -> Outcome {
    match tune {
        Tune::Show { choice, short } => show(repository, choice, !short),
        Tune::Apply { choice, dry_run: true } => {
            let disk = Disk::new(&choice.tree.root);
            dry_apply(&disk, &profile::read(repository, choice.profile.text())?)
        }
        Tune::Apply { choice, dry_run: false } => {
            let profile = profile::read(repository, choice.profile.text())?;
            let disk = privileged(&choice.tree, &format!("apply --profile {}", profile.name), is_root())?;
            let _alone = alone(&disk)?;
            apply::apply(&disk, &profile, &mut |line| say(line))
        }
        Tune::Revert { tree, dry_run: true } => dry_revert(&Disk::new(&tree.root)),
        Tune::Revert { tree, dry_run: false } => {
            let disk = privileged(tree, "revert", is_root())?;
            let _alone = alone(&disk)?;
            revert::revert(&disk, &mut |line| say(line))
        }
    }
}

/// The machine's own settings are root's.
fn privileged(tree: &Tree, what: &str, root: bool) -> Outcome<Disk> {
    if tree.root != Path::new("/") || root {
        return Ok(Disk::new(&tree.root));
    }
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("target/release/xtask"));
    let refused = format!("`tune {what}` changes the kernel's settings, which only root may do; nothing was changed");
    Err(Failure::new(refused).remedy(format!(
        "`cargo xtask tune {what} --dry-run` to see it, then `sudo {} tune {what}`",
        program.display()
    )))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a network namespace whose settings can be changed may be made here: what the test on the real kernel needs.
pub(crate) fn own_network() -> bool {
    let mut look = Command::new("unshare");
    look.args(["--net", "test", "-w", "/proc/sys/net/core/somaxconn"]);
    look.stdout(Stdio::null()).stderr(Stdio::null());
    look.status().is_ok_and(|status| status.success())
}

/// Keeps a second `tune` out.
fn alone(disk: &Disk) -> Outcome<impl Sized + use<>> {
    disk.lock(journal::FOLDER).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Failure::new("another `tune` is at work; nothing was changed"),
        _ => Failure::new(format!("cannot lock {}: {error}; nothing was changed", journal::FOLDER)),
    })
}

fn show(repository: &Path, choice: &Choice, reasons: bool) -> Outcome {
    let profile = profile::read(repository, choice.profile.text())?;
    let disk = Disk::new(&choice.tree.root);
    applied(&disk)?;
    say(format!("Profile {} (tuning/{}.conf):", profile.name, profile.name));
    for line in table::table(&plan::look(&disk, &profile), reasons) {
        say(line.trim_end());
    }
    Ok(())
}

/// Says what was applied before.
fn applied(files: &dyn Files) -> Outcome {
    match journal::read(files) {
        // Only root reads it.
        Err(_) if !is_root() => {
            say("Something was applied before; root can see what.");
        }
        told => {
            if let Some(told) = told? {
                let end = if told.done { "" } else { ", and was cut short" };
                say(format!(
                    "Profile {} was applied{end}; `tune revert` takes it back.",
                    told.profile
                ));
            }
        }
    }
    Ok(())
}

fn dry_apply(files: &dyn Files, profile: &profile::Profile) -> Outcome {
    applied(files)?;
    let rows = plan::look(files, profile);
    let mut sysctls = Vec::new();
    let mut limits = Vec::new();
    for row in &rows {
        say(would(row));
        match &row.state {
            State::Change(Change::Value(value)) => sysctls.extend(apply::boot_line(value)),
            State::Change(Change::Limits { lines, .. }) => limits.extend_from_slice(lines),
            _ => {}
        }
    }
    for (path, lines) in [(SYSCTL_FILE, sysctls), (LIMITS_FILE, limits)] {
        if !lines.is_empty() {
            say(format!("\n{path} would be:"));
            say(apply::drop_in(&profile.name, &lines).trim_end());
        }
    }
    say("\nNothing was changed.");
    Ok(())
}

fn would(row: &Row) -> String {
    let (name, now) = (&row.name, &row.now);
    match &row.state {
        State::Good => format!("{name}: {now} is as wanted"),
        State::Better => format!("{name}: {now} is better than {}", row.wanted),
        State::Kept => format!("{name}: {now} was chosen by somebody; it stays"),
        State::Absent => format!("{name}: this machine does not have it"),
        State::Odd(why) => format!("{name}: {why}; it stays"),
        State::Change(Change::Value(value)) => format!("{name}: {now} would become {}", value.write),
        State::Change(Change::Limits { .. }) => format!("{name}: {now} would become {} at the next login", row.wanted),
    }
}

fn dry_revert(files: &dyn Files) -> Outcome {
    let told = journal::read(files)?;
    let Some(told) = told else {
        say("Nothing is applied.");
        return Ok(());
    };
    for step in revert::preview(files, &told)? {
        match step {
            Step::Nothing => {}
            Step::Restore { path, before } => say(format!("{path}: would be {} again", rule::words(&before))),
            Step::Remove { path } => say(format!("{path}: would be removed")),
            Step::RemoveFolder { path } => say(format!("{path}: would be removed if empty")),
            Step::Leave(why) => say(why),
        }
    }
    say("Nothing was changed.");
    Ok(())
}
