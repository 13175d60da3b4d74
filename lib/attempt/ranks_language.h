#ifndef TRAIND_LIB_ATTEMPT_RANKS_LANGUAGE_H
#define TRAIND_LIB_ATTEMPT_RANKS_LANGUAGE_H

// What ranks on several nodes say to each other, as one number. It covers the keys of the
// rendezvous store and their values, the groups that ranks form, and the headers on their
// connections. It also covers which collective follows which. Two builds that differ in one of
// these meet and then wait for each other for good. So nodes register the number, and a job that
// spans nodes takes nodes of one number only. Ranks of one node are of one build and need none.
//
// A change of any of these adds a row here and raises the number. A test of the messages fails
// until that is done, as far as a program can see the change. Rejected: the version of the build,
// which differs where the language does not, so that a rolling upgrade would split the cluster.
//
//   1  the first that is registered: one mesh of all ranks for data and one for what hooks and
//      plugins exchange; hierarchies of shared memory below them

enum { TD_RANKS_LANGUAGE = 1 };

#endif
