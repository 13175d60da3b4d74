#ifndef TRAIND_LIB_ATTEMPT_LANGUAGES_H
#define TRAIND_LIB_ATTEMPT_LANGUAGES_H

// What parts of traind that may be of different builds say to each other, as numbers. Each change
// adds a row here and raises the number. tests/unit/attempt/test_languages.c compares tests/golden/
// languages.txt with what this build says, and names the number to raise. `traind --dump-languages`
// prints them. Plans have a digest that follows their tables (lib/spec/language.h).
//
// Launchers: TD_LAUNCHER_MAJOR and TD_LAUNCHER_MINOR of segments.h. They cover the frames between a
// launcher and its node, the page that it shares with a rank, and the lines of events.log. A node
// takes over launchers of its own major number. Another one it stops, with a checkpoint.
//
// Ranks: what ranks on several nodes say to each other. It covers the keys of the rendezvous store
// and their values, the groups that ranks form, and the headers on their connections. It also
// covers which collective follows which, which no program sees: think of it. Two builds that differ
// in one of these meet and then wait for each other for good. So nodes register the number, and a
// job that spans nodes takes nodes of one number only. Ranks of one node are of one build and need
// none. Rejected: the version of the build, which differs where the language does not, so that a
// rolling upgrade would split the cluster.
//
//   1  the first that is registered: a group of all ranks, and a second where programs sum over
//      ranks beside buckets, which all ranks join once they have compared their programs
//
// Nodes: messages between a node and its coordinator (node.proto, plugin.proto). Fields are only
// added, and who does not know one ignores it, so builds of different numbers go together. A row
// here says what the older of the two does without.
//
//   1  the first that is counted: a node says what plans and what ranks it has, a coordinator why
//      it sends it no jobs
//   2  Reconcile.own_directory: an older node leaves the directory of a program that was deleted
//   3  heartbeats have `trouble`: without it the node is asked, and refuses
//   4  PlanRequest.trusted, Assign.trusted: an older node has no path rules; with an older
//      coordinator a node binds all jobs to --read-roots and --write-roots
//   5  Reconcile.results: an older node removes what ranks left for people with each job that is
//      forgotten; of an older coordinator's jobs it stays
//   6  gpu_list, Register.gpus: the GPUs of an older node are not known
//   7  Register.gives_gpus, several of Assign.devices a rank: an older node gets no job that asks
//      for GPUs
//   8  GpuList.errors: XIDs of an older node are lines of its log alone; with an older coordinator
//      they exclude no device

enum { TD_RANKS_LANGUAGE = 1, TD_NODES_LANGUAGE = 8 };

#endif
