#ifndef GLOO_COMMON_MEMORY_H
#define GLOO_COMMON_MEMORY_H

// Debian's libgloo-dev leaves out one header that its headers of the TCP transport include. The
// Makefile puts this in its place, where it is missing. libgloo keeps these pointers in its objects
// and alone uses them: what counts here is how large they are. gloo.cc compares the size of such an
// object with one that libgloo made.

#include <memory>

namespace gloo {

template <typename T> class NonOwningPtr final {
    std::shared_ptr<T> held_;
};

template <typename T> class WeakNonOwningPtr final {
    std::weak_ptr<T> seen_;
};

template <typename T> class ShareableNonOwningPtr final {
    std::shared_ptr<T> owned_;
};

} // namespace gloo

#endif
