"""What is known of who wrote a log, in words."""

from arranger.events.log_keys import Authenticity

#: What is known → the words.
AUTHENTICITY = {
    Authenticity.NONE: "not authenticated: who can write to Redis or the file can write the log",
    Authenticity.UNCHECKED: "not checked: the log is signed, and this command has no key (ARRANGER_LOG_KEY)",
    Authenticity.PARTLY: "signatures are checked, but log_key names none, so entries without one are accepted too",
    Authenticity.CHECKED: "authenticated: every entry has a signature by a key of log_key",
}
