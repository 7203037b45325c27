// The shapes of docs/rest.md, as far as the console reads them. For the type checker alone; no browser loads this.

export type Json = any;
export interface Page<T> { items: T[]; next_cursor: string | null }
export interface WeftError { code: string; message: string; retryable: boolean; node?: string; details: Record<string, any> }
export interface Execution {
  id: string; workflow: string | null; version: number | null; digest: string; generation: number; state: string;
  live: boolean; error: WeftError | null; labels: Record<string, string>; priority: string; batch: string | null;
  forked_from: string | null; trigger: string | null;
  trace_id: string | null; created_at: string; started_at: string | null; finished_at: string | null;
  counts: Record<string, number>; input?: Json; output?: Json; nodes?: Node[];
}
export interface Progress { done: number; total: number | null; message: string | null; at: string }
export interface Node {
  id: string; handler: string; state: string; attempt: number; queued_at: string | null; started_at: string | null;
  finished_at: string | null; due_at: string | null; worker: string | null; progress: Progress | null;
  reason: string | null; cause: string | null; cached: boolean; reused: boolean; error?: WeftError | null;
  output?: Json; output_bytes: number | null;
}
export interface Attempt {
  number: number; generation: number; worker: string | null; queued_at: string | null; started_at: string | null;
  finished_at: string | null; outcome: string | null; error: WeftError | null;
}
export interface NodeDetail extends Node { config: Json; generation: number; max_retries: number; attempts: Attempt[] }
export interface Topology { version: string; nodes: string[]; handlers: string[]; handler: number[]; from: number[]; to: number[] }
export interface Reason { code: string; message: string; until?: string; nodes?: string[] }
export interface Explanation { state: string; reasons: Reason[] }
export interface LogLine {
  seq: number; at: string; node: string; attempt: number; stream: string; level: string | null;
  logger: string | null; message: string;
}
export interface Event {
  seq?: number; at: string; type: string; execution: string; generation: number; node?: string; attempt?: number;
  state?: string; reason?: string; cause?: string; signal?: string; error?: WeftError; worker?: string; actor?: string; due_at?: string;
  queued_at?: string; started_at?: string; finished_at?: string;
}
export interface Expected {
  finish_at: string; low_at: string; high_at: string; remaining_seconds: number; samples: number; deciding: string[];
}
export interface Timeline {
  execution: string; workflow: string | null; version: number | null; state: string; created_at: string;
  started_at: string | null; finished_at: string | null; now: string;
  attempts: { node: number[]; number: number[]; queued: (number | null)[]; started: (number | null)[];
    finished: (number | null)[]; outcome: (string | null)[]; worker: (number | null)[] };
  workers: string[];
  critical_path: { node: string; attempt: number; queued_ms: number; started_ms: number; finished_ms: number; waiting_ms: number }[];
  expected: Expected | null;
}
export interface Workflow { name: string; version: number; digest: string; created_at: string; aliases: Record<string, number>; definition?: Json }
export interface DeadLetter {
  id: string; execution: string; workflow: string | null; node: string; generation: number; attempt: number; handler: string;
  queue: string; config: Json; error: WeftError; state: string; created_at: string;
}
export interface LetterGroup {
  workflow: string | null; node: string; code: string | null; count: number; executions: number; first_at: string;
  last_at: string; sample: DeadLetter; letters?: DeadLetter[];
}
export interface LettersChanged { matched: number; done: number; refused: { id: string; code: string; message: string }[]; next_cursor?: string | null }
export interface Hour { from: string; COMPLETED: number; FAILED: number; CANCELLED: number; started: number }
export interface Overview {
  executions: Record<string, number>; hours: Hour[]; failures: LetterGroup[]; dead_letters: number; waits: number;
  due_next: { trigger: string; workflow: string; at: string }[];
  workers: { alive: number; slots: number; running: number };
  queues: { name: string; depth: number; oldest_age_seconds: number | null }[];
}
export interface Worker {
  id: string; host: string; pid: number; version: string; state: "alive" | "draining" | "lost"; queues: string[];
  handlers: string[]; concurrency: number; running: number; started_at: string; heartbeat_age_seconds: number;
}
export interface Queue { name: string; depth: number; oldest_age_seconds: number | null; in_flight: number; workers: number }
export interface Setting { name: string; value: string | null; source: string; default: string; doc: string }
export interface About {
  version: string; python: string; started_at: string; journal: string; store: string; transport: string; durability: string;
  schema: { have: string | null; want: string | null }; settings: Setting[]; links: { title: string; url: string }[];
}
export interface Version { name: string; version: number; digest: string; created_at: string }
export interface Recent { id: string; state: string; started_at: string | null; finished_at: string | null; seconds: number | null }
export interface Statistics {
  recent: Recent[]; seconds: { p50: number | null; p95: number | null; mean: number | null }; success_rate: number | null;
  nodes?: Record<string, { p50: number | null; failures: number }> | null;
}
export interface Batch {
  id: string; workflow: string; version: number; state: string; total: number; counts: Record<string, number>;
  retried: number; created_at: string; finished_at: string | null;
}
export interface BatchResult { index: number; execution: string; state: string; output: Json; error: WeftError | null }
export interface Wait {
  execution: string; workflow: string | null; node: string; signal: string; prompt: string | null; schema: Json; since: string;
  expires_at: string | null;
}
export interface Trigger {
  name: string; workflow: string; version: number | string; enabled: boolean; input: Json; labels: Record<string, string>;
  priority: string; overlap: string;
  schedule?: { cron?: string; every_seconds?: number; timezone?: string; catch_up: string; jitter_seconds: number };
  event?: { type: string; when: string | null }; webhook?: { secret: string; scheme: string };
  created_at: string; changed_at: string; next_at: string | null; skipped: number; skipped_at: string | null;
  error: { at: string; code: string; message: string } | null;
}
export interface TriggerDetail extends Trigger { upcoming: string[]; executions: Execution[] }
export interface InboundEvent {
  id: string; source: string; type: string; received_at: string; event: Json; started: string[];
  answered: { execution: string; node: string }[];
}
export interface Session { keys: boolean; signed_in: boolean; csrf: string | null; name: string | null }
