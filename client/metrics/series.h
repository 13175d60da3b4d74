#ifndef TRAIND_CLIENT_METRICS_SERIES_H
#define TRAIND_CLIENT_METRICS_SERIES_H

// Series: the answer to a question about metrics, from its first page to its last, as one message
// that borrows the pages' points. Bound: TD_MAX_PAGES pages, and next_page_token says that there
// are more.

#include "client/session/session.h"
#include "traind/v1/metric.pb-c.h"

struct td_series;

// As the arguments and the flags say: args[0] is a job, the others are names.
void td_series_request_init(const struct td_flags *f, Traind__V1__QueryMetricsRequest *out_request);
// The request's page_token is written.
TD_MUST_USE td_status td_series_read(struct td_session *s, Traind__V1__QueryMetricsRequest *request,
                                     struct td_series **out_series);
void td_series_destroy(struct td_series *series);
TD_DEFINE_AUTO(td_series, td_series_destroy);

const Traind__V1__QueryMetricsResponse *td_series_get(const struct td_series *series);
// Refuses a name (args[1] and on) that no series of the job has, where there are others, and lists
// these: NOT_FOUND. answer: to the question with these names; what nodes have yet to send may bring
// the name, and so may other steps.
TD_MUST_USE td_status td_series_check_names(struct td_session *s, const struct td_flags *f,
                                            const Traind__V1__QueryMetricsResponse *answer);
// NULL: there is none of that name.
const Traind__V1__Series *td_series_find(const Traind__V1__QueryMetricsResponse *r,
                                         const char *name);

#endif
