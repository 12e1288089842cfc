//! Processes of ours: started with a log, recorded with their id, and ended only while they are still the same.
//!
//! Each daemon is told a path in its folder on its command line. A recorded id whose command line no longer names one
//! belongs to somebody else by now, and is left alone.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::util::{self, Result};

const LOG_LINES: usize = 15;
const EXEC: Duration = Duration::from_secs(5);
const GENTLE: Duration = Duration::from_secs(10);
const HARD: Duration = Duration::from_secs(5);

/// A process that was started in a folder, as its `.pid` file there tells.
#[derive(Debug)]
pub(crate) struct Daemon {
    record: PathBuf,
    pid: u32,
}

/// Starts a process that outlives this one, and records it. Its output goes to `<name>.log`.
pub(crate) fn spawn(home: &Path, name: &str, command: &mut Command) -> Result<()> {
    let log = File::create(home.join(name).with_extension("log"))?;
    let command = command.stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log).process_group(0);
    let mut child =
        command.spawn().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let daemon = Daemon { record: home.join(name).with_extension("pid"), pid: child.id() };
    fs::write(&daemon.record, daemon.pid.to_string())?;
    // For a moment a new process has no command line yet, and would pass for one that has ended.
    util::until(EXEC, || {
        if daemon.runs() || child.try_wait()?.is_some() {
            Ok(())
        } else {
            Err(format!("{name}: no path in its folder on its command line").into())
        }
    })
}

/// The processes recorded in the folder, by name.
pub(crate) fn recorded(home: &Path) -> Vec<Daemon> {
    let read =
        |record: PathBuf| Some(Daemon { pid: fs::read_to_string(&record).ok()?.parse().ok()?, record });
    files(home, "pid").into_iter().filter_map(read).collect()
}

/// Waits until the answer is `Ok`, but not for a process of the folder that has ended.
pub(crate) fn until(home: &Path, limit: Duration, mut ask: impl FnMut() -> Result<()>) -> Result<()> {
    util::until(limit, || match ask() {
        Ok(()) => Ok(Ok(())),
        Err(error) => match gone(home).as_slice() {
            [] => Err(error),
            gone => Ok(Err(format!("{} ended", gone.join(", ")).into())),
        },
    })?
}

/// The names of the recorded processes that no longer run.
pub(crate) fn gone(home: &Path) -> Vec<String> {
    recorded(home).iter().filter(|daemon| !daemon.runs()).map(Daemon::name).collect()
}

/// Ends the recorded processes, by force when they do not go; whether any ran.
pub(crate) fn stop_all(home: &Path, signal: &str) -> Result<bool> {
    let daemons = recorded(home);
    let any = daemons.iter().any(Daemon::runs);
    daemons.iter().try_for_each(|daemon| daemon.signal(signal))?;
    if util::until(GENTLE, || all_gone(&daemons)).is_err() {
        daemons.iter().try_for_each(|daemon| daemon.signal("KILL"))?;
        util::until(HARD, || all_gone(&daemons))?;
    }
    daemons.iter().try_for_each(|daemon| fs::remove_file(&daemon.record))?;
    Ok(any)
}

/// The ends of the logs in the folder.
pub(crate) fn log_tail(home: &Path) -> String {
    let tail = |log: PathBuf| {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let last = lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default();
        format!("--- {}\n{}\n", log.display(), last.join("\n"))
    };
    files(home, "log").into_iter().map(tail).collect()
}

impl Daemon {
    fn name(&self) -> String {
        self.record.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether the process runs and is still the one that was started.
    fn runs(&self) -> bool {
        let home = format!("{}/", self.record.parent().unwrap_or(&self.record).display());
        command_line(self.pid).is_some_and(|line| line.contains(&home))
    }

    fn signal(&self, signal: &str) -> Result<()> {
        if self.runs() {
            let kill = format!("kill -{signal} {}", self.pid);
            // It may have gone between the look and the signal: whether it is gone is asked afterwards.
            Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status()?;
        }
        Ok(())
    }
}

fn all_gone(daemons: &[Daemon]) -> Result<()> {
    let left: Vec<_> = daemons.iter().filter(|daemon| daemon.runs()).map(Daemon::name).collect();
    if left.is_empty() { Ok(()) } else { Err(format!("{} still running", left.join(", ")).into()) }
}

/// The words of a process's command line. A process that has ended but was not waited for has none.
fn command_line(pid: u32) -> Option<String> {
    if Path::new("/proc/self/cmdline").exists() {
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        return Some(String::from_utf8_lossy(&words).replace('\0', " "));
    }
    let output = Command::new("ps").args(["-o", "command=", "-p", &pid.to_string()]).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn files(home: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(home).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder under `target`, gone when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = util::root().join("target/xtask-tests").join(format!("{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A shell that names the folder on its command line, does as told, and then waits for ever.
    fn waiting(home: &Path, first: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{first}; while :; do sleep 0.1; done")]).arg(home.join("data"));
        command
    }

    #[test]
    fn a_daemon_is_recorded_logged_and_stopped() {
        let folder = Folder::new("stopped");
        spawn(&folder.0, "one", &mut waiting(&folder.0, "echo hello")).unwrap();
        let daemons = recorded(&folder.0);
        assert_eq!(daemons.iter().map(Daemon::name).collect::<Vec<_>>(), ["one"]);
        util::until(Duration::from_secs(5), || {
            if log_tail(&folder.0).ends_with("one.log\nhello\n") { Ok(()) } else { Err("no log".into()) }
        })
        .unwrap();
        assert!(daemons.iter().all(Daemon::runs));

        assert!(stop_all(&folder.0, "TERM").unwrap());
        assert!(!daemons.iter().any(Daemon::runs));
        assert!(recorded(&folder.0).is_empty());
        assert!(!stop_all(&folder.0, "TERM").unwrap());
    }

    #[test]
    fn nobody_waits_for_a_daemon_that_has_ended() {
        let folder = Folder::new("ended");
        spawn(&folder.0, "one", Command::new("sh").args(["-c", "exit 1"]).arg(folder.0.join("data")))
            .unwrap();
        let waited = until(&folder.0, Duration::from_secs(60), || Err("not ready".into()));
        assert_eq!(waited.unwrap_err().to_string(), "one ended");
        assert_eq!(gone(&folder.0), ["one"]);
    }

    #[test]
    fn a_process_that_is_not_ours_is_left_alone() {
        let (ours, other) = (Folder::new("ours"), Folder::new("other"));
        spawn(&other.0, "one", &mut waiting(&other.0, ":")).unwrap();
        fs::copy(other.0.join("one.pid"), ours.0.join("one.pid")).unwrap();

        assert!(!stop_all(&ours.0, "TERM").unwrap());
        assert!(recorded(&other.0).iter().all(Daemon::runs));
        assert!(stop_all(&other.0, "TERM").unwrap());
    }
}
