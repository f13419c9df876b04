"""Physics that waits for nobody: tasks on the MuJoCo batch, and the ray-cast camera."""
